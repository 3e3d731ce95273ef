// SPDX-License-Identifier: Apache-2.0
#include "media/png.hpp"

#include <png.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "media/file.hpp"

namespace media {
namespace {

bool is_grey(const Image& image) {
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    if (image.rgb[i] != image.rgb[i + 1] || image.rgb[i] != image.rgb[i + 2]) {
      return false;
    }
  }
  return true;
}

// The simplified interface of libpng: it reports errors in `message` and never jumps out.
class Control {
 public:
  Control() { control_.version = PNG_IMAGE_VERSION; }
  ~Control() { png_image_free(&control_); }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  png_image* operator->() { return &control_; }
  png_image* get() { return &control_; }

 private:
  png_image control_ = {};
};

}  // namespace

void write_png(const std::filesystem::path& path, const Image& image) {
  const auto fail = [&path](const std::string& reason) {
    throw std::runtime_error("cannot write '" + path.string() + "': " + reason);
  };
  if (image.width < 1 || image.height < 1) {
    fail("the picture is empty");
  }
  std::vector<uint8_t> grey;
  if (is_grey(image)) {
    grey.reserve(image.rgb.size() / 3);
    for (size_t i = 0; i < image.rgb.size(); i += 3) {
      grey.push_back(image.rgb[i]);
    }
  }
  Control control;
  control->width = static_cast<png_uint_32>(image.width);
  control->height = static_cast<png_uint_32>(image.height);
  control->format = grey.empty() ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const void* pixels = grey.empty() ? image.rgb.data() : grey.data();
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(*control.get());
  std::vector<unsigned char> file(size);
  if (png_image_write_to_memory(control.get(), file.data(), &size, 0, pixels, 0, nullptr) == 0) {
    fail(control->message);
  }
  file.resize(size);
  replace_file(path, file);
}

Image read_png(const std::filesystem::path& path) {
  const auto fail = [&path](const std::string& reason) {
    throw std::runtime_error("cannot read '" + path.string() + "': " + reason);
  };
  Control control;
  if (png_image_begin_read_from_file(control.get(), path.c_str()) == 0) {
    fail(control->message);
  }
  control->format = PNG_FORMAT_RGB;
  Image image(static_cast<int>(control->width), static_cast<int>(control->height));
  const png_color black = {0, 0, 0};
  if (png_image_finish_read(control.get(), &black, image.rgb.data(), 0, nullptr) == 0) {
    fail(control->message);
  }
  return image;
}

}  // namespace media
