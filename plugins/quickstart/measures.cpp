// SPDX-License-Identifier: Apache-2.0
#include "quickstart/measures.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <limbeck/error.hpp>

namespace quickstart {
namespace {

// A dense square matrix, row by row.
class Square {
 public:
  explicit Square(int64_t n) : n_(n), values_(static_cast<size_t>(n * n)) {}

  int64_t size() const { return n_; }
  double& operator()(int64_t row, int64_t column) {
    return values_[static_cast<size_t>(row * n_ + column)];
  }
  double operator()(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * n_ + column)];
  }
  double trace() const {
    double sum = 0;
    for (int64_t i = 0; i < n_; ++i) {
      sum += (*this)(i, i);
    }
    return sum;
  }

 private:
  int64_t n_;
  std::vector<double> values_;
};

Square operator*(const Square& a, const Square& b) {
  const auto n = a.size();
  Square product(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t j = 0; j < n; ++j) {
        product(i, j) += a(i, k) * b(k, j);
      }
    }
  }
  return product;
}

struct Moments {
  std::vector<double> mean;
  Square covariance;
};

Moments moments(const FeatureSet& set) {
  const auto width = set.width;
  const auto value = [&set, width](int64_t row, int64_t column) {
    return set.values[static_cast<size_t>(row * width + column)];
  };
  Moments result{std::vector<double>(static_cast<size_t>(width)), Square(width)};
  for (int64_t column = 0; column < width; ++column) {
    double sum = 0;
    for (int64_t row = 0; row < set.count; ++row) {
      sum += value(row, column);
    }
    result.mean[static_cast<size_t>(column)] = sum / static_cast<double>(set.count);
  }
  std::vector<double> centred(static_cast<size_t>(width));
  for (int64_t row = 0; row < set.count; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      const auto at = static_cast<size_t>(column);
      centred[at] = value(row, column) - result.mean[at];
    }
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        result.covariance(i, j) += centred[static_cast<size_t>(i)] *
                                   centred[static_cast<size_t>(j)] /
                                   static_cast<double>(set.count - 1);
      }
    }
  }
  return result;
}

// Eigenvalues of a symmetric matrix, and its eigenvectors as columns, by cyclic Jacobi rotations
// (Golub and Van Loan, "Matrix Computations", 8.5): exact to rounding, and quick enough for the
// 64 columns of a small judge.
struct Spectrum {
  std::vector<double> values;
  Square vectors;
};

Spectrum spectrum(Square matrix) {
  constexpr int kMaxSweeps = 50;
  const auto n = matrix.size();
  Square vectors(n);
  double scale = 0;
  for (int64_t i = 0; i < n; ++i) {
    vectors(i, i) = 1;
    for (int64_t j = 0; j < n; ++j) {
      scale += matrix(i, j) * matrix(i, j);
    }
  }
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double off_diagonal = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        off_diagonal += matrix(i, j) * matrix(i, j);
      }
    }
    if (off_diagonal <= 1e-30 * scale) {
      break;
    }
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        if (matrix(p, q) == 0) {
          continue;
        }
        const double theta = (matrix(q, q) - matrix(p, p)) / (2 * matrix(p, q));
        const double tangent =
            std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
        const double cosine = 1 / std::hypot(tangent, 1.0);
        const double sine = tangent * cosine;
        for (int64_t k = 0; k < n; ++k) {
          const double kp = matrix(k, p);
          const double kq = matrix(k, q);
          matrix(k, p) = cosine * kp - sine * kq;
          matrix(k, q) = sine * kp + cosine * kq;
        }
        for (int64_t k = 0; k < n; ++k) {
          const double pk = matrix(p, k);
          const double qk = matrix(q, k);
          matrix(p, k) = cosine * pk - sine * qk;
          matrix(q, k) = sine * pk + cosine * qk;
          const double vp = vectors(k, p);
          const double vq = vectors(k, q);
          vectors(k, p) = cosine * vp - sine * vq;
          vectors(k, q) = sine * vp + cosine * vq;
        }
      }
    }
  }
  Spectrum result{std::vector<double>(static_cast<size_t>(n)), std::move(vectors)};
  for (int64_t i = 0; i < n; ++i) {
    result.values[static_cast<size_t>(i)] = matrix(i, i);
  }
  return result;
}

// The symmetric square root of a covariance; rounding below zero is cut off.
Square square_root(const Square& covariance) {
  const auto [values, vectors] = spectrum(covariance);
  const auto n = covariance.size();
  Square root(n);
  for (int64_t k = 0; k < n; ++k) {
    const double weight = std::sqrt(std::max(0.0, values[static_cast<size_t>(k)]));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        root(i, j) += weight * vectors(i, k) * vectors(j, k);
      }
    }
  }
  return root;
}

double similarity(
    const ClipSet& clips, const float* from, const float* to, int64_t down, int64_t right) {
  double product = 0;
  double from_norm = 0;
  double to_norm = 0;
  for (int64_t y = 0; y < clips.height; ++y) {
    for (int64_t x = 0; x < clips.width; ++x) {
      const auto source_y = y - down;
      const auto source_x = x - right;
      const bool is_inside =
          source_y >= 0 && source_y < clips.height && source_x >= 0 && source_x < clips.width;
      const double a = is_inside ? double{from[source_y * clips.width + source_x]} + 1 : 0;
      const double b = double{to[y * clips.width + x]} + 1;
      product += a * b;
      from_norm += a * a;
      to_norm += b * b;
    }
  }
  const double norm = std::sqrt(from_norm * to_norm);
  return norm > 1e-12 ? product / norm : 0;
}

}  // namespace

double frechet_distance(const FeatureSet& a, const FeatureSet& b) {
  if (a.width != b.width || a.count < 2 || b.count < 2) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "the distance of feature sets needs equal widths and two rows each, not [" +
                        std::to_string(a.count) + ", " + std::to_string(a.width) + "] and [" +
                        std::to_string(b.count) + ", " + std::to_string(b.width) + "]");
  }
  const auto [mean_a, covariance_a] = moments(a);
  const auto [mean_b, covariance_b] = moments(b);
  double distance = covariance_a.trace() + covariance_b.trace();
  for (size_t i = 0; i < mean_a.size(); ++i) {
    distance += (mean_a[i] - mean_b[i]) * (mean_a[i] - mean_b[i]);
  }
  // C_a C_b has the eigenvalues of the symmetric R C_b R with R = C_a^(1/2).
  const auto root = square_root(covariance_a);
  for (const double value : spectrum(root * covariance_b * root).values) {
    distance -= 2 * std::sqrt(std::max(0.0, value));
  }
  return std::max(0.0, distance);
}

double rigid_motion(const ClipSet& clips) {
  double sum = 0;
  for (int64_t clip = 0; clip < clips.count; ++clip) {
    for (int64_t frame = 0; frame + 1 < clips.frames; ++frame) {
      double best = -1;
      for (const int64_t down : {-2, 0, 2}) {
        for (const int64_t right : {-2, 0, 2}) {
          best = std::max(best, similarity(clips, clips.frame(clip, frame),
                                           clips.frame(clip, frame + 1), down, right));
        }
      }
      sum += best;
    }
  }
  return sum / static_cast<double>(std::max<int64_t>(1, clips.count * (clips.frames - 1)));
}

double diversity(const ClipSet& clips, std::span<const int64_t> labels) {
  std::map<int64_t, std::vector<int64_t>> members;
  for (int64_t clip = 0; clip < clips.count; ++clip) {
    members[labels[static_cast<size_t>(clip)]].push_back(clip);
  }
  double sum = 0;
  int classes = 0;
  for (const auto& [label, list] : members) {
    double distances = 0;
    int64_t pairs = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t j = i + 1; j < list.size(); ++j) {
        const float* a = clips.frame(list[i], 0);
        const float* b = clips.frame(list[j], 0);
        double squares = 0;
        for (int64_t k = 0; k < clips.frames * clips.height * clips.width; ++k) {
          squares += (double{a[k]} - double{b[k]}) * (double{a[k]} - double{b[k]});
        }
        distances += std::sqrt(squares);
        ++pairs;
      }
    }
    if (pairs > 0) {
      sum += distances / static_cast<double>(pairs);
      ++classes;
    }
  }
  return classes > 0 ? sum / classes : 0;
}

}  // namespace quickstart
