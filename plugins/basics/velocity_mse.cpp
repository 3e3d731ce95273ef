// SPDX-License-Identifier: Apache-2.0
#include "basics/velocity_mse.hpp"

#include <vector>

#include <limbeck/diffusion/loss_weight.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace basics {
namespace {

lb::Tensor in_full_precision(const lb::Tensor& x) { return x.dtype() == LB_F64 ? x : x.to(LB_F32); }

// [b] or [b, T] as a tensor that multiplies one of shape `sizes` = [b, c, T, ...].
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
  return lb::diffusion::sigma_of(in_full_precision(timestep));
}

}  // namespace

lb::Tensor VelocityMse::loss(const lb::Step&, const lb::Batch& values) {
  const lb::Tensor prediction = in_full_precision(values["prediction"]);
  const lb::Tensor target = in_full_precision(values["target"]);
  const std::vector<int64_t> sizes = prediction.sizes();
  if (sizes != target.sizes()) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'prediction' has shape " + prediction.shape() +
                                             " and 'target' " + target.shape() +
                                             "; they must be equal");
  }
  const lb::Tensor weight = values.find("weight");
  const lb::Tensor mask = values.find("mask");
  if (options_.weighting == "none" && !weight.defined() && !mask.defined()) {
    return lb::mse_loss(prediction, target);
  }
  lb::Tensor error = (prediction - target).square();
  if (options_.weighting != "none") {
    const lb::Tensor sigma = spread(in_full_precision(level_of(values)), "sigma", sizes);
    error = error * (options_.weighting == "cosmap" ? lb::diffusion::cosmap_weight(sigma)
                                                    : lb::diffusion::sigma_sqrt_weight(sigma));
  }
  if (weight.defined()) {
    error = error * spread(in_full_precision(weight), "weight", sizes);
  }
  if (!mask.defined()) {
    return error.mean();
  }
  const lb::Tensor shown = spread(in_full_precision(mask), "mask", sizes).expand(sizes);
  static const lb::Op clamp_min("aten::clamp_min");
  return (error * shown).sum() / clamp_min({shown.sum(), 1.0});
}

}  // namespace basics
