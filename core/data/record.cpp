// SPDX-License-Identifier: Apache-2.0
#include "core/data/record.hpp"

#include <charconv>
#include <ios>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;

[[noreturn]] void refuse_record(const std::string& what, const std::string& hint = "") {
  throw Error(Fault::kData, "the saved position in the data " + what, hint);
}

template <class T>
void compare(std::vector<std::string>& out, const char* name, const T& was, const T& now) {
  if (was != now) {
    out.push_back(cat(name, " is ", now, ", was ", was));
  }
}

int64_t count(const json& record, const char* name, int64_t least) {
  if (!record.contains(name) || !record[name].is_number_integer() ||
      (record[name].is_number_unsigned() && record[name].get<uint64_t>() > INT64_MAX) ||
      record[name].get<int64_t>() < least) {
    refuse_record(cat("has no integer '", name, "' of at least ", least));
  }
  return record[name].get<int64_t>();
}

// Text, because JSON readers round integers above 2^53.
uint64_t word(const json& record, const char* name) {
  const auto text = record.contains(name) && record[name].is_string()
                        ? record[name].get<std::string>()
                        : std::string();
  uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (fault != std::errc() || end != text.data() + text.size()) {
    refuse_record(cat("has no hexadecimal number '", name, "'"));
  }
  return value;
}

std::string name(const json& record, const char* key) {
  if (!record.contains(key) || !record[key].is_string()) {
    refuse_record(cat("has no text '", key, "'"));
  }
  return record[key].get<std::string>();
}

}  // namespace

std::vector<std::string> DataRecord::differences(const DataRecord& now) const {
  std::vector<std::string> out;
  compare(out, "seed", seed, now.seed);
  compare(out, "order", order, now.order);
  compare(out, "mix", mix, now.mix);
  compare(out, "the number of samples", total_samples, now.total_samples);
  compare(out, "the shuffle window", window, now.window);
  if (fingerprint != now.fingerprint) {
    out.push_back("the fingerprint of files, rows and sources differs");
  }
  return out;
}

std::string DataRecord::to_json() const {
  nlohmann::ordered_json record;
  record["version"] = kVersion;
  record["epoch"] = position.epoch;
  record["samples_consumed_in_epoch"] = position.sample;
  record["total_samples"] = total_samples;
  record["seed"] = cat(std::hex, seed);
  record["order"] = order;
  record["mix"] = mix;
  record["window"] = window;
  record["fingerprint"] = cat(std::hex, fingerprint);
  record["groups"] = groups;
  record["batch_size"] = batch_size;
  return record.dump();
}

DataRecord DataRecord::from_json(std::string_view text) {
  const json record = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) {
    refuse_record("is not a JSON object");
  }
  const int64_t version = count(record, "version", 1);
  if (version != kVersion) {
    refuse_record(cat("has format ", version, "; this limbeck reads format ", kVersion),
                  "resume with the version of limbeck that saved it, or a newer one");
  }
  DataRecord out;
  out.position = {count(record, "epoch", 0), count(record, "samples_consumed_in_epoch", 0)};
  out.total_samples = count(record, "total_samples", -1);
  out.seed = word(record, "seed");
  out.order = name(record, "order");
  out.mix = name(record, "mix");
  out.window = count(record, "window", 1);
  out.fingerprint = word(record, "fingerprint");
  out.groups = count(record, "groups", 1);
  out.batch_size = count(record, "batch_size", 1);
  return out;
}

}  // namespace limbeck
