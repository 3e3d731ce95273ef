// SPDX-License-Identifier: Apache-2.0
#include "basics/event_file.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>

namespace basics {
namespace {

static_assert(std::endian::native == std::endian::little, "integers are stored as they are");

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// ---- protobuf: a message is the concatenation of its fields

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80U);
  }
  return bytes += static_cast<char>(value);
}
std::string key(uint32_t field, uint32_t wire_type) { return varint(field << 3 | wire_type); }

std::string integer(uint32_t field, int64_t value) {
  return key(field, 0) + varint(static_cast<uint64_t>(value));
}
std::string fixed(uint32_t field, double value) { return key(field, 1).append(bytes_of(value)); }
std::string fixed(uint32_t field, float value) { return key(field, 5).append(bytes_of(value)); }
std::string field(uint32_t number, std::string_view content) {  // a string or a message
  return (key(number, 2) += varint(content.size())).append(content);
}

// ---- TensorBoard's messages: the numbers are those of event.proto, summary.proto, tensor.proto

std::string event(double time, int64_t step) { return fixed(1, time) + integer(2, step); }

std::string summary(const std::string& values) { return field(5, values); }

// SessionLog{status: START}: the reader drops what it has of this step and later.
std::string restart() { return field(7, integer(1, 1)); }

// SummaryMetadata{plugin_data{plugin_name}, summary_description}
std::string shown_by(std::string_view plugin, std::string_view description = "") {
  return field(9, field(1, field(1, plugin)) + (description.empty() ? "" : field(3, description)));
}

// TensorProto{dtype: DT_STRING, tensor_shape{dim{size: 1}}, string_val}
std::string text_tensor(std::string_view text) {
  return field(8, integer(1, 7) + field(2, field(2, integer(1, 1))) + field(8, text));
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::filesystem::path new_path(const std::filesystem::path& folder, double time) {
  static std::atomic<int> count{0};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(folder, "cannot create the folder", error.value());
  }
  std::array<char, 64> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010lld", static_cast<long long>(time));
  return folder / ("events.out.tfevents." + std::string(seconds.data()) + "." + host_name() + "." +
                   std::to_string(getpid()) + "." + std::to_string(count++));
}

// Two bytes at `at`, the first one high, or low.
int high_first(const std::string& bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) << 8 | static_cast<uint8_t>(bytes[at + 1]);
}
int low_first(const std::string& bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at + 1]) << 8 | static_cast<uint8_t>(bytes[at]);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t remainder = i;
      for (int bit = 0; bit < 8; ++bit) {
        remainder = remainder >> 1 ^ ((remainder & 1U) != 0 ? 0x82F63B78U : 0U);
      }
      table[i] = remainder;
    }
    return table;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFFU];
  }
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

Picture read_picture(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Picture picture;
  picture.bytes.assign(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open()) {
    fail(path, "cannot read", errno);
  }
  const auto& bytes = picture.bytes;
  if (bytes.size() >= 24 && bytes.starts_with("\x89PNG\r\n\x1a\n")) {
    picture.width = high_first(bytes, 16) << 16 | high_first(bytes, 18);
    picture.height = high_first(bytes, 20) << 16 | high_first(bytes, 22);
  } else if (bytes.size() >= 10 && (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a"))) {
    picture.width = low_first(bytes, 6);
    picture.height = low_first(bytes, 8);
  } else {
    throw std::runtime_error("'" + path.string() + "' is neither a PNG nor a GIF");
  }
  return picture;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step, double time)
    : file_(new_path(folder, time), AppendFile::Start::kNew) {
  append(fixed(1, time) + field(3, "brain.Event:2"));
  append(event(time, first_step > 1 ? first_step : 0) + restart());
}

void EventFile::scalars(int64_t step,
                        double time,
                        const std::vector<std::pair<std::string, double>>& values) {
  std::string all;
  for (const auto& [name, value] : values) {
    all += field(1, field(1, name) + fixed(2, static_cast<float>(value)));
  }
  append(event(time, step) + summary(all));
}

void EventFile::picture(int64_t step,
                        double time,
                        const std::string& tag,
                        const Picture& picture,
                        const std::string& description) {
  constexpr int kRgb = 3;
  const auto image = integer(1, picture.height) + integer(2, picture.width) + integer(3, kRgb) +
                     field(4, picture.bytes);
  append(event(time, step) +
         summary(field(1, field(1, tag) + field(4, image) + shown_by("images", description))));
}

void EventFile::text(int64_t step, double time, const std::string& tag, const std::string& text) {
  append(event(time, step) +
         summary(field(1, field(1, tag) + text_tensor(text) + shown_by("text"))));
}

void EventFile::append(std::string_view event) {
  const uint64_t length = event.size();
  const uint32_t length_crc = masked_crc32c(bytes_of(length));
  const uint32_t event_crc = masked_crc32c(event);
  std::string record(bytes_of(length));
  record.append(bytes_of(length_crc)).append(event).append(bytes_of(event_crc));
  file_.append(record);
}

}  // namespace basics
