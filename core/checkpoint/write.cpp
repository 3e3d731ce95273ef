// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/write.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".unfinished";

[[noreturn]] void fail(const char* operation, const fs::path& path, const std::error_code& why) {
  throw Error(Fault::kData, cat("cannot ", operation, " ", path.string(), ": ", why.message()));
}

// A new folder that disappears again unless it is renamed.
class NewFolder {
 public:
  explicit NewFolder(fs::path path) : path_(std::move(path)) {
    std::error_code failed;
    fs::remove_all(path_, failed);
    fs::create_directories(path_ / kDcpFolder, failed);
    if (failed) {
      fail("create the folder", path_, failed);
    }
  }
  ~NewFolder() {
    std::error_code failed;
    fs::remove_all(path_, failed);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return path_; }

  // A folder at `target` is replaced.
  void rename_to(const fs::path& target) {
    flush_folder(path_ / kDcpFolder);
    flush_folder(path_);
    int failed = rename(target, RENAME_NOREPLACE);
    if (failed == EEXIST) {
      failed = rename(target, RENAME_EXCHANGE);  // the old one goes with this object
    }
    // Only a file system that does not know these flags: after any other fault what is there stays.
    if (failed == EINVAL || failed == ENOSYS) {
      failed = replace(target);
    }
    if (failed != 0) {
      fail("rename to", target, {failed, std::generic_category()});
    }
    flush_folder(target.parent_path());
  }

 private:
  int rename(const fs::path& target, unsigned int flags) const {
    return ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), flags) == 0 ? 0 : errno;
  }

  // In two steps, between which there is none of that name; the new one is complete on disk by
  // then. If the second fails, the old one comes back.
  int replace(const fs::path& target) const {
    auto aside = target;
    aside += ".replaced";
    const bool has_old = ::rename(target.c_str(), aside.c_str()) == 0;
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      const int failed = errno;
      if (has_old) {
        ::rename(aside.c_str(), target.c_str());
      }
      return failed;
    }
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    return 0;
  }

  fs::path path_;
};

CheckpointFile file_of(const fs::path& folder, const std::string& path, const std::string& text) {
  write_file(folder / path, text);
  return {path, digest_of(text)};
}

CheckpointFile write_tensors(const fs::path& folder, const Snapshot& snapshot, DcpIndex& index) {
  const std::string name = "__0_0.distcp";
  DcpFileWriter writer(folder / kDcpFolder, name);
  for (const auto& [key, value] : snapshot.values) {
    index.values.emplace(key, writer.add_value(value));
  }
  for (const auto& tensor : snapshot.tensors) {
    auto& entry = index.tensors[tensor.name];
    entry.type = tensor.type;
    entry.sizes = tensor.sizes;
    entry.chunks.push_back(
        {tensor.box, writer.add_tensor(*tensor.type, tensor.box.sizes, tensor.data.get())});
  }
  return {cat(kDcpFolder, "/", name), writer.close()};
}

}  // namespace

uint64_t Snapshot::bytes() const {
  uint64_t sum = 0;
  for (const auto& tensor : tensors) {
    sum += static_cast<uint64_t>(tensor.box.numel()) * tensor.type->bytes;
  }
  return sum;
}

fs::path write_checkpoint(const fs::path& output_dir,
                          const Snapshot& snapshot,
                          CheckpointText text) {
  auto& record = text.record;
  const auto target = output_dir / checkpoint_name(record.step);
  NewFolder folder(output_dir / (checkpoint_name(record.step) + std::string(kUnfinished)));
  DcpIndex index;
  record.files = {
      write_tensors(folder.path(), snapshot, index),
      file_of(folder.path(), cat(kDcpFolder, "/", kDcpIndexFile), dcp_index_bytes(index)),
      file_of(folder.path(), kCheckpointConfig, text.resolved_manifest)};
  const auto json = record.to_json();
  write_file(folder.path() / kRecordFile, json);
  write_file(folder.path() / kCompleteFile, completion_of(json));
  folder.rename_to(target);
  return target;
}

void remove_old_checkpoints(const fs::path& output_dir, int64_t limit, const fs::path& newest) {
  if (limit <= 0) {
    return;
  }
  int64_t kept = 1;
  for (const auto& [path, step] : list_checkpoints(output_dir)) {
    if (path == newest || kept++ < limit) {
      continue;
    }
    // Renamed first: a removal that is interrupted leaves no folder that looks like a checkpoint.
    auto doomed = path;
    doomed += kUnfinished;
    std::error_code failed;
    fs::rename(path, doomed, failed);
    if (!failed) {
      fs::remove_all(doomed, failed);
    }
    if (failed) {
      log::warn("checkpoint", cat("cannot remove ", path.string(), ": ", failed.message()));
    }
  }
}

void remove_unfinished_checkpoints(const fs::path& output_dir) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(output_dir, failed)) {
    const auto& path = entry.path();
    if (path.extension() == kUnfinished && step_of_checkpoint(path.stem().string()) >= 0) {
      log::info("checkpoint", cat("removing ", path.string(), ", which was never completed"));
      fs::remove_all(path, failed);
    }
  }
}

std::vector<fs::path> set_aside_later_checkpoints(const fs::path& output_dir, int64_t step) {
  std::vector<fs::path> renamed;
  for (const auto& checkpoint : list_checkpoints(output_dir)) {
    if (checkpoint.step <= step) {
      continue;
    }
    auto aside = checkpoint.path;
    aside += ".abandoned";
    for (int n = 2; fs::exists(aside); ++n) {
      aside = checkpoint.path;
      aside += cat(".abandoned-", n);
    }
    std::error_code failed;
    fs::rename(checkpoint.path, aside, failed);
    if (failed) {
      fail("rename", checkpoint.path, failed);
    }
    renamed.push_back(aside);
  }
  return renamed;
}

}  // namespace limbeck
