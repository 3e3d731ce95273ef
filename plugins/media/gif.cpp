// SPDX-License-Identifier: Apache-2.0
#include "media/gif.hpp"

#include <gif_lib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "media/file.hpp"

namespace media {
namespace {

constexpr int kColours = 256;
constexpr int kShortestDelay = 2;  // viewers show shorter ones at a tenth of a second

// The frames as indices into one palette.
struct Indexed {
  std::vector<GifColorType> palette;  // kColours entries
  std::vector<std::vector<GifByteType>> frames;
};

uint32_t key_of(const uint8_t* pixel) {
  return uint32_t{pixel[0]} << 16 | uint32_t{pixel[1]} << 8 | uint32_t{pixel[2]};
}

// False if there are more than kColours different colours.
bool index_exactly(const std::vector<Image>& frames, Indexed& out) {
  std::map<uint32_t, GifByteType> known;
  for (const Image& frame : frames) {
    for (size_t i = 0; i < frame.rgb.size(); i += 3) {
      if (known.emplace(key_of(frame.rgb.data() + i), GifByteType{0}).second &&
          known.size() > kColours) {
        return false;
      }
    }
  }
  out.palette.assign(kColours, GifColorType{0, 0, 0});
  size_t next = 0;
  for (auto& [key, index] : known) {
    index = static_cast<GifByteType>(next);
    out.palette[next++] = {static_cast<GifByteType>(key >> 16),
                           static_cast<GifByteType>(key >> 8 & 255),
                           static_cast<GifByteType>(key & 255)};
  }
  for (const Image& frame : frames) {
    std::vector<GifByteType> indices;
    indices.reserve(frame.rgb.size() / 3);
    for (size_t i = 0; i < frame.rgb.size(); i += 3) {
      indices.push_back(known.find(key_of(frame.rgb.data() + i))->second);
    }
    out.frames.push_back(std::move(indices));
  }
  return true;
}

// One palette for the whole clip, so that still parts do not flicker: the frames are quantised as
// one tall picture.
bool index_nearest(const std::vector<Image>& frames, Indexed& out) {
  const size_t pixels = frames[0].rgb.size() / 3;
  std::vector<GifByteType> red;
  std::vector<GifByteType> green;
  std::vector<GifByteType> blue;
  for (const Image& frame : frames) {
    for (size_t i = 0; i < frame.rgb.size(); i += 3) {
      red.push_back(frame.rgb[i]);
      green.push_back(frame.rgb[i + 1]);
      blue.push_back(frame.rgb[i + 2]);
    }
  }
  std::vector<GifByteType> indices(red.size());
  out.palette.assign(kColours, GifColorType{0, 0, 0});
  int colours = kColours;
  if (GifQuantizeBuffer(
          static_cast<unsigned>(frames[0].width),
          static_cast<unsigned>(frames[0].height) * static_cast<unsigned>(frames.size()), &colours,
          red.data(), green.data(), blue.data(), indices.data(), out.palette.data()) != GIF_OK) {
    return false;
  }
  for (size_t k = 0; k < frames.size(); ++k) {
    const auto first = indices.begin() + static_cast<std::ptrdiff_t>(k * pixels);
    out.frames.emplace_back(first, first + static_cast<std::ptrdiff_t>(pixels));
  }
  return true;
}

int append(GifFileType* gif, const GifByteType* bytes, int size) {
  auto& content = *static_cast<std::vector<unsigned char>*>(gif->UserData);
  content.insert(content.end(), bytes, bytes + size);
  return size;
}

class Encoder {
 public:
  explicit Encoder(std::vector<unsigned char>& content) {
    gif_ = EGifOpen(&content, append, &error_);
  }
  ~Encoder() { finish(); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  GifFileType* get() { return gif_; }
  // GIF_OK, or GIF_ERROR with the reason in error().
  int finish() {
    GifFileType* gif = gif_;
    gif_ = nullptr;
    return gif == nullptr ? GIF_OK : EGifCloseFile(gif, &error_);
  }
  int error() const { return gif_ != nullptr && gif_->Error != 0 ? gif_->Error : error_; }

 private:
  GifFileType* gif_ = nullptr;
  int error_ = 0;
};

bool encode(Encoder& encoder, const Indexed& indexed, int width, int height, double fps) {
  GifFileType* gif = encoder.get();
  if (gif == nullptr) {
    return false;
  }
  const std::unique_ptr<ColorMapObject, void (*)(ColorMapObject*)> palette(
      GifMakeMapObject(kColours, indexed.palette.data()), GifFreeMapObject);
  if (palette == nullptr) {
    return false;
  }
  EGifSetGifVersion(gif, true);
  if (EGifPutScreenDesc(gif, width, height, 8, 0, palette.get()) != GIF_OK) {
    return false;
  }
  const GifByteType forever[] = {1, 0, 0};
  if (EGifPutExtensionLeader(gif, APPLICATION_EXT_FUNC_CODE) != GIF_OK ||
      EGifPutExtensionBlock(gif, 11, "NETSCAPE2.0") != GIF_OK ||
      EGifPutExtensionBlock(gif, sizeof forever, forever) != GIF_OK ||
      EGifPutExtensionTrailer(gif) != GIF_OK) {
    return false;
  }
  for (size_t k = 0; k < indexed.frames.size(); ++k) {
    // Rounding the times, not the durations, keeps the speed of a long clip right.
    const double start = std::round(100.0 * static_cast<double>(k) / fps);
    const double end = std::round(100.0 * static_cast<double>(k + 1) / fps);
    GraphicsControlBlock control = {};
    control.DisposalMode = DISPOSE_DO_NOT;
    control.TransparentColor = NO_TRANSPARENT_COLOR;
    control.DelayTime = static_cast<int>(std::clamp(end - start, double{kShortestDelay}, 65535.0));
    GifByteType block[4];
    const size_t size = EGifGCBToExtension(&control, block);
    if (EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, static_cast<int>(size), block) != GIF_OK ||
        EGifPutImageDesc(gif, 0, 0, width, height, false, nullptr) != GIF_OK) {
      return false;
    }
    std::vector<GifByteType> line(static_cast<size_t>(width));
    for (int y = 0; y < height; ++y) {
      const auto first = indexed.frames[k].begin() + std::ptrdiff_t{y} * width;
      std::copy(first, first + width, line.begin());
      if (EGifPutLine(gif, line.data(), width) != GIF_OK) {
        return false;
      }
    }
  }
  return encoder.finish() == GIF_OK;
}

std::string reason_of(int error) {
  const char* text = GifErrorString(error);
  return text == nullptr ? "error " + std::to_string(error) + " of giflib" : text;
}

}  // namespace

void write_gif(const std::filesystem::path& path, const std::vector<Image>& frames, double fps) {
  const auto fail = [&path](const std::string& reason) {
    throw std::runtime_error("cannot write '" + path.string() + "': " + reason);
  };
  if (frames.empty()) {
    fail("there are no frames");
  }
  const int width = frames[0].width;
  const int height = frames[0].height;
  if (width < 1 || height < 1 || width > 65535 || height > 65535) {
    fail("frames are " + std::to_string(width) + " by " + std::to_string(height) +
         " pixels; a side has 1 to 65535");
  }
  for (const Image& frame : frames) {
    if (frame.width != width || frame.height != height) {
      fail("frames of different sizes");
    }
  }
  if (!(fps > 0.0) || !std::isfinite(fps)) {
    fail("fps is " + std::to_string(fps) + "; it must be positive");
  }
  Indexed indexed;
  if (!index_exactly(frames, indexed) && !index_nearest(frames, indexed)) {
    fail("not enough memory to reduce the colours");
  }
  std::vector<unsigned char> content;
  Encoder encoder(content);
  if (!encode(encoder, indexed, width, height, fps)) {
    fail(reason_of(encoder.error()));
  }
  replace_file(path, content);
}

Animation read_gif(const std::filesystem::path& path) {
  const auto fail = [&path](const std::string& reason) {
    throw std::runtime_error("cannot read '" + path.string() + "': " + reason);
  };
  int error = 0;
  const auto close = [](GifFileType* file) {
    int ignored = 0;
    DGifCloseFile(file, &ignored);
  };
  const std::unique_ptr<GifFileType, decltype(close)> gif(DGifOpenFileName(path.c_str(), &error),
                                                          close);
  if (gif == nullptr) {
    fail(reason_of(error));
  }
  if (DGifSlurp(gif.get()) != GIF_OK) {
    fail(reason_of(gif->Error));
  }
  Animation animation;
  for (int k = 0; k < gif->ImageCount; ++k) {
    const SavedImage& saved = gif->SavedImages[k];
    const ColorMapObject* palette =
        saved.ImageDesc.ColorMap != nullptr ? saved.ImageDesc.ColorMap : gif->SColorMap;
    if (palette == nullptr || saved.ImageDesc.Width != gif->SWidth ||
        saved.ImageDesc.Height != gif->SHeight) {
      fail("frame " + std::to_string(k) + " is not a whole picture with a palette");
    }
    Image image(gif->SWidth, gif->SHeight);
    for (size_t i = 0; i < image.rgb.size() / 3; ++i) {
      const int index = std::min<int>(saved.RasterBits[i], palette->ColorCount - 1);
      const GifColorType& colour = palette->Colors[index];
      image.rgb[3 * i] = colour.Red;
      image.rgb[3 * i + 1] = colour.Green;
      image.rgb[3 * i + 2] = colour.Blue;
    }
    animation.frames.push_back(std::move(image));
    GraphicsControlBlock control = {};
    const bool has_control = DGifSavedExtensionToGCB(gif.get(), k, &control) == GIF_OK;
    animation.delays.push_back(has_control ? control.DelayTime : 0);
    for (int e = 0; e < saved.ExtensionBlockCount; ++e) {
      const ExtensionBlock& block = saved.ExtensionBlocks[e];
      if (block.Function == APPLICATION_EXT_FUNC_CODE && block.ByteCount == 11 &&
          std::memcmp(block.Bytes, "NETSCAPE2.0", 11) == 0) {
        animation.repeats = true;
      }
    }
  }
  return animation;
}

}  // namespace media
