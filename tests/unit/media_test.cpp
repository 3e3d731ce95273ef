// SPDX-License-Identifier: Apache-2.0
// Pictures against what libpng and giflib read back, and charts against where lines must be.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "media/chart.hpp"
#include "media/file.hpp"
#include "media/gif.hpp"
#include "media/image.hpp"
#include "media/png.hpp"

#include <doctest/doctest.h>

namespace {

namespace fs = std::filesystem;
using media::Image;
using media::Rgb;

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "limbeck_media_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

Image greys(int width, int height, int shift) {
  Image image(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto value = static_cast<uint8_t>((y * width + x + shift) & 255);
      image.put(x, y, {value, value, value});
    }
  }
  return image;
}

Image colours(int width, int height) {
  Image image(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.put(x, y,
                {static_cast<uint8_t>(255 * x / (width - 1)),
                 static_cast<uint8_t>(255 * y / (height - 1)), 96});
    }
  }
  return image;
}

double mean_difference(const Image& a, const Image& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.rgb.size(); ++i) {
    sum += std::abs(double(a.rgb[i]) - double(b.rgb[i]));
  }
  return sum / static_cast<double>(a.rgb.size());
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

int count_of(const Image& image, Rgb colour) {
  int count = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      count += image.at(x, y) == colour ? 1 : 0;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("a pixel value becomes the nearest byte") {
  CHECK(media::byte_of(-1.0F) == 0);
  CHECK(media::byte_of(0.0F) == 128);  // 127.5, away from zero
  CHECK(media::byte_of(1.0F) == 255);
  CHECK(media::byte_of(-7.0F) == 0);
  CHECK(media::byte_of(7.0F) == 255);
  CHECK(media::byte_of(std::nanf("")) == 0);
  for (int byte = 0; byte < 256; ++byte) {
    CHECK(media::byte_of(static_cast<float>(byte) / 127.5F - 1.0F) == byte);
  }
}

TEST_CASE("one plane is grey and three are red, green and blue") {
  const std::vector<float> values = {-1, 1, 1, -1, 0.5F, -0.5F};
  const Image grey = media::from_planes(values.data(), 1, 1, 2, 0);
  CHECK(grey.rgb == std::vector<uint8_t>{0, 0, 0, 255, 255, 255});
  const Image colour = media::from_planes(values.data(), 3, 1, 2, 2);
  CHECK(colour.rgb == std::vector<uint8_t>{0, 255, 191, 255, 0, 64});
  CHECK(message_of([&] { media::from_planes(values.data(), 2, 1, 2, 2); }) ==
        "pixels have 2 channels; a picture can show 1 (grey) or 3 (RGB)");
}

TEST_CASE("enlarging repeats pixels") {
  Image image(2, 1);
  image.put(1, 0, {9, 8, 7});
  const Image large = media::enlarge(image, 3);
  CHECK(large.width == 6);
  CHECK(large.height == 3);
  CHECK(count_of(large, {9, 8, 7}) == 9);
  CHECK(large.at(3, 2) == Rgb{9, 8, 7});
  CHECK(large.at(2, 2) == Rgb{});
  CHECK_THROWS_AS(media::enlarge(image, 0), std::invalid_argument);
}

TEST_CASE("pasting cuts off what lies outside") {
  const Image piece(3, 3, {1, 1, 1});
  for (const auto& [x, y, seen] : {std::tuple{0, 0, 9}, std::tuple{-1, -2, 2}, std::tuple{3, 3, 1},
                                   std::tuple{4, 0, 0}, std::tuple{0, -3, 0}}) {
    Image onto(4, 4);
    media::paste(onto, piece, x, y);
    CHECK(count_of(onto, {1, 1, 1}) == seen);
  }
}

TEST_CASE("a grid places tiles row by row with lines around them") {
  std::vector<Image> tiles;
  for (uint8_t i = 0; i < 3; ++i) {
    tiles.emplace_back(2, 2, Rgb{i, 0, 0});
  }
  const Image sheet = media::grid(tiles, 2, 1, {5, 5, 5});
  CHECK(sheet.width == 7);
  CHECK(sheet.height == 7);
  CHECK(sheet.at(0, 0) == Rgb{5, 5, 5});
  CHECK(sheet.at(1, 1) == Rgb{0, 0, 0});
  CHECK(sheet.at(4, 1) == Rgb{1, 0, 0});
  CHECK(sheet.at(2, 5) == Rgb{2, 0, 0});
  CHECK(sheet.at(5, 5) == Rgb{5, 5, 5});
  CHECK_THROWS_AS(media::grid({}, 1), std::invalid_argument);
  CHECK_THROWS_AS(media::grid(tiles, 0), std::invalid_argument);
}

TEST_CASE("a PNG file holds the exact pixels") {
  const Folder folder;
  for (const Image& image : {colours(37, 21), greys(16, 16, 3), Image(1, 1, {255, 0, 7})}) {
    const fs::path path = folder / "deep/picture.png";
    media::write_png(path, image);
    Image back = media::read_png(path);
    CHECK(back == image);
    back.rgb[0] ^= 1;
    CHECK_FALSE(back == image);
  }
  CHECK(folder.count() == 1);
}

TEST_CASE("grey frames survive in a GIF file") {
  const Folder folder;
  const std::vector<Image> frames = {greys(20, 17, 0), greys(20, 17, 100), greys(20, 17, 7)};
  media::write_gif(folder / "clip.gif", frames, 10);
  const media::Animation clip = media::read_gif(folder / "clip.gif");
  CHECK(clip.frames == frames);
  CHECK(clip.delays == std::vector<int>{10, 10, 10});
  CHECK(clip.repeats);
}

TEST_CASE("up to 256 colours survive in a GIF file, more become near ones") {
  const Folder folder;
  const std::vector<Image> few = {colours(16, 16), colours(16, 16)};
  media::write_gif(folder / "few.gif", few, 8);
  CHECK(media::read_gif(folder / "few.gif").frames == few);

  const std::vector<Image> many = {colours(64, 64)};
  media::write_gif(folder / "many.gif", many, 8);
  const Image back = media::read_gif(folder / "many.gif").frames.at(0);
  CHECK(back != many[0]);
  CHECK(mean_difference(back, many[0]) < 6.0);
  CHECK(mean_difference(greys(64, 64, 0), many[0]) > 6.0);  // the bound tells pictures apart

  // Many colours that all fall into few cells of the quantiser.
  Image close(32, 32, {100, 100, 100});
  for (int i = 0; i < 300; ++i) {
    close.put(i % 32, i / 32,
              {static_cast<uint8_t>(96 + i % 8), static_cast<uint8_t>(96 + i / 8 % 8),
               static_cast<uint8_t>(96 + i / 64)});
  }
  media::write_gif(folder / "close.gif", {close}, 8);
  CHECK(mean_difference(media::read_gif(folder / "close.gif").frames.at(0), close) < 4.0);
}

TEST_CASE("the frames of a GIF file keep the speed on average") {
  const Folder folder;
  const std::vector<Image> frames(16, Image(4, 4));
  media::write_gif(folder / "clip.gif", frames, 16);
  int total = 0;
  for (const int delay : media::read_gif(folder / "clip.gif").delays) {
    CHECK(delay >= 6);
    CHECK(delay <= 7);
    total += delay;
  }
  CHECK(total == 100);
  media::write_gif(folder / "fast.gif", frames, 1000);
  CHECK(media::read_gif(folder / "fast.gif").delays == std::vector<int>(16, 2));
}

TEST_CASE("what cannot be written names path and reason and leaves nothing behind") {
  const Folder folder;
  const Image image(2, 2);
  { std::ofstream(folder / "file") << "x"; }
  const fs::path below = folder / "file/picture.png";
  const std::string message = message_of([&] { media::write_png(below, image); });
  CHECK(message.find(below.string()) != std::string::npos);
  CHECK(message.find("Not a directory") != std::string::npos);
  CHECK(message_of([&] {
          media::write_png(folder / "a.png", Image());
        }).find("the picture is empty") != std::string::npos);
  CHECK(message_of([&] { media::write_gif(folder / "a.gif", {}, 8); }).find("no frames") !=
        std::string::npos);
  CHECK(message_of([&] { media::write_gif(folder / "a.gif", {image}, 0); }).find("fps") !=
        std::string::npos);
  CHECK(message_of([&] {
          media::write_gif(folder / "a.gif", {image, Image(3, 2)}, 8);
        }).find("different sizes") != std::string::npos);
  CHECK(message_of([&] { media::read_png(folder / "file"); }).find("cannot read") == 0);
  CHECK(message_of([&] { media::read_gif(folder / "file"); }).find("cannot read") == 0);
  fs::create_directory(folder / "taken.png");
  CHECK(message_of([&] { media::write_png(folder / "taken.png", image); }).find("taken.png") !=
        std::string::npos);
  CHECK(folder.count() == 2);
}

TEST_CASE("a file is replaced as a whole") {
  const Folder folder;
  const std::vector<unsigned char> first(1000, 'a');
  const std::vector<unsigned char> second(10, 'b');
  media::replace_file(folder / "x", first);
  media::replace_file(folder / "x", second);
  CHECK(fs::file_size(folder / "x") == 10);
  CHECK(folder.count() == 1);
}

TEST_CASE("smoothing is an average without bias to zero") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> constant(5, 3.0);
  for (const double value : media::smooth(constant, 0.9)) {
    CHECK(value == doctest::Approx(3.0));
  }
  // Weights 1, 1/2, 1/4 of 4, 2, 1.
  CHECK(media::smooth({1, 2, 4}, 0.5)[2] == doctest::Approx((4 + 1 + 0.25) / 1.75));
  CHECK_FALSE(media::smooth({1, 2, 4}, 0.4)[2] == doctest::Approx((4 + 1 + 0.25) / 1.75));
  const std::vector<double> gaps = media::smooth({nan, 2, nan, 2}, 0.5);
  CHECK(std::isnan(gaps[0]));
  CHECK(gaps[2] == doctest::Approx(2.0));
  CHECK(media::smooth({1, 7}, 0.0)[1] == doctest::Approx(7.0));
}

TEST_CASE("ticks are round numbers inside the range") {
  CHECK(media::ticks(0, 10, 6) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(media::ticks(1, 1200, 8) == std::vector<double>{200, 400, 600, 800, 1000, 1200});
  CHECK(media::ticks(-0.5, 0.5, 3) == std::vector<double>{-0.5, 0, 0.5});
  CHECK(media::ticks(3, 3, 5).empty());
  CHECK(media::ticks(0, std::numeric_limits<double>::infinity(), 5).empty());
  for (const double high : {1e-7, 0.013, 1.0, 77.0, 1e12}) {
    const std::vector<double> values = media::ticks(0, high, 6);
    CHECK(values.size() >= 2);
    CHECK(values.size() <= 6);
  }
}

TEST_CASE("a curve is drawn where its values are") {
  media::Chart chart;
  chart.smoothing = 0.0;
  std::vector<double> x;
  std::vector<double> rising;
  std::vector<double> falling;
  for (int i = 0; i <= 100; ++i) {
    x.push_back(i);
    rising.push_back(i);
    falling.push_back(-i);
  }
  const auto row_of = [&](const Image& image, int column) {
    int sum = 0;
    int count = 0;
    for (int y = 0; y < image.height; ++y) {
      if (image.at(column, y).b > image.at(column, y).r + 60) {  // blue, also at its edges
        sum += y;
        ++count;
      }
    }
    return count == 0 ? -1 : sum / count;
  };
  const auto first_and_last = [&](const Image& image) {
    int first = -1;
    int last = -1;
    for (int column = 0; column < image.width; ++column) {
      const int row = row_of(image, column);
      if (row >= 0) {
        first = first < 0 ? row : first;
        last = row;
      }
    }
    return std::pair(first, last);
  };
  const auto [up_first, up_last] = first_and_last(media::draw_curve(x, rising, chart));
  CHECK(up_first > 300);
  CHECK(up_last < 100);
  const auto [down_first, down_last] = first_and_last(media::draw_curve(x, falling, chart));
  CHECK(down_first < 100);
  CHECK(down_last > 300);
}

TEST_CASE("a chart of nothing, of one point and of values that are not finite is drawn") {
  const double inf = std::numeric_limits<double>::infinity();
  media::Chart chart;
  chart.title = "loss";
  chart.x_label = "step";
  for (const std::vector<double>& y : {std::vector<double>{},
                                       {1.0},
                                       {0.0, 0.0, 0.0},
                                       {inf, -inf, inf},
                                       {1.0, inf, 1e300, -1e300},
                                       {1e-30, 2e-30}}) {
    std::vector<double> x;
    for (size_t i = 0; i < y.size(); ++i) {
      x.push_back(static_cast<double>(i));
    }
    const Image image = media::draw_curve(x, y, chart);
    CHECK(image.width == 800);
    CHECK(image.height == 450);
  }
  CHECK_THROWS_AS(media::draw_curve({1.0}, {}, chart), std::invalid_argument);
  chart.width = 20;
  CHECK_THROWS_AS(media::draw_curve({}, {}, chart), std::invalid_argument);
}

TEST_CASE("every character of a chart, but O and 0, has a picture of its own") {
  const std::string known =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNPQRSTUVWXYZ0123456789 .,:;-+=/%_()[]#*";
  std::vector<Image> seen;
  for (const char character : known + "\x01") {
    Image image(media::text_width(1), 7);
    media::draw_text(image, 0, 0, std::string(1, character), {255, 255, 255});
    for (const Image& other : seen) {
      CHECK_FALSE(image == other);
    }
    seen.push_back(image);
  }
  CHECK(media::text_width(3, 2) == 34);
}
