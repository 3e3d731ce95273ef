// SPDX-License-Identifier: Apache-2.0
// A file of events as TensorBoard reads it.
//
// A record is: length (u64, little endian), masked CRC-32C of these 8 bytes (u32), an Event message
// in protobuf's wire format, masked CRC-32C of the message (u32).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "basics/append_file.hpp"

namespace basics {

// CRC-32C (Castagnoli); of "123456789" it is 0xE3069283.
uint32_t crc32c(std::string_view bytes);
// The form that is stored beside the bytes it is of: a checksum of data with a checksum in it would
// be weak.
uint32_t masked_crc32c(std::string_view bytes);

// An encoded picture with its size in pixels, read from the header of a PNG or GIF.
struct Picture {
  int width = 0;
  int height = 0;
  std::string bytes;
};
// Throws std::runtime_error, naming `path`, for a file that cannot be read or is neither.
Picture read_picture(const std::filesystem::path& path);

// Every event reaches the file at once (append_file.hpp). Times are seconds since 1970; a value is
// kept in single precision. Functions throw std::runtime_error with path and reason. One thread.
class EventFile {
 public:
  // Makes a new file in `folder`, which is created if needed:
  // events.out.tfevents.<seconds>.<host>.<process>.<number>. A reader merges the files of a folder
  // and drops what earlier ones have of `first_step` and later: it belongs to another future. A run
  // from step 1 makes it drop everything.
  EventFile(const std::filesystem::path& folder, int64_t first_step, double time);

  const std::filesystem::path& path() const { return file_.path(); }

  void scalars(int64_t step,
               double time,
               const std::vector<std::pair<std::string, double>>& values);
  // `description` is Markdown and may be empty.
  void picture(int64_t step,
               double time,
               const std::string& tag,
               const Picture& picture,
               const std::string& description);
  // `text` is Markdown.
  void text(int64_t step, double time, const std::string& tag, const std::string& text);

 private:
  void append(std::string_view event);

  AppendFile file_;
};

}  // namespace basics
