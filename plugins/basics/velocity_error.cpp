// SPDX-License-Identifier: Apache-2.0
#include "basics/velocity_error.hpp"

#include <limbeck/diffusion/loss_weight.hpp>
#include <limbeck/diffusion/schedule.hpp>
#include <limbeck/diffusion/score.hpp>

namespace basics {
namespace {

using lb::diffusion::full_precision;

lb::Tensor level_of(const lb::Batch& values) {
  const lb::Tensor sigma = values.find("sigma");
  if (sigma.defined()) {
    return sigma;
  }
  const lb::Tensor timestep = values.find("timestep");
  if (!timestep.defined()) {
    throw lb::Error(LB_NOT_FOUND,
                    "a weighting by noise level needs 'sigma' or 'timestep' in the batch; use "
                    "weighting = \"none\" or a prepare hook that writes one");
  }
  return lb::diffusion::sigma_of(full_precision(timestep));
}

}  // namespace

lb::Tensor spread(const lb::Tensor& values, const char* name, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> shape(sizes.size(), 1);
  const std::vector<int64_t> own = values.sizes();
  if (own.size() == sizes.size()) {
    return values;
  }
  const bool is_per_sample = own.size() == 1 && own[0] == sizes[0];
  const bool is_per_frame =
      own.size() == 2 && sizes.size() > 2 && own[0] == sizes[0] && own[1] == sizes[2];
  if (!is_per_sample && !is_per_frame) {
    throw lb::Error(LB_INVALID_ARGUMENT, std::string("'") + name + "' has shape " + values.shape() +
                                             "; expected one value per sample or per frame of a "
                                             "prediction with " +
                                             std::to_string(sizes[0]) + " samples");
  }
  shape[0] = own[0];
  if (is_per_frame) {
    shape[2] = own[1];
  }
  return values.reshape(shape);
}

lb::Tensor velocity_error(const lb::Tensor& a,
                          const char* name_of_a,
                          const lb::Tensor& b,
                          const char* name_of_b,
                          const lb::Batch& values,
                          const LevelWeight& options) {
  const lb::Tensor prediction = full_precision(a);
  const lb::Tensor target = full_precision(b);
  const std::vector<int64_t> sizes = prediction.sizes();
  if (sizes != target.sizes()) {
    throw lb::Error(LB_INVALID_ARGUMENT, std::string("'") + name_of_a + "' has shape " +
                                             prediction.shape() + " and '" + name_of_b + "' " +
                                             target.shape() + "; they must be equal");
  }
  const lb::Tensor weight = values.find("weight");
  const lb::Tensor mask = values.find("mask");
  if (options.weighting == "none" && !weight.defined() && !mask.defined()) {
    return lb::mse_loss(prediction, target);
  }
  lb::Tensor error = (prediction - target).square();
  if (options.weighting != "none") {
    const lb::Tensor sigma = spread(full_precision(level_of(values)), "sigma", sizes);
    error = error * (options.weighting == "cosmap" ? lb::diffusion::cosmap_weight(sigma)
                                                   : lb::diffusion::sigma_sqrt_weight(sigma));
  }
  if (weight.defined()) {
    error = error * spread(full_precision(weight), "weight", sizes);
  }
  if (!mask.defined()) {
    return error.mean();
  }
  const lb::Tensor shown = spread(full_precision(mask), "mask", sizes).expand(sizes);
  static const lb::Op clamp_min("aten::clamp_min");
  return (error * shown).sum() / clamp_min({shown.sum(), 1.0});
}

}  // namespace basics
