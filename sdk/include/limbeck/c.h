/* SPDX-License-Identifier: Apache-2.0 */
/* A C face over abi.h: values in, values out, the first error sticks. Header-only, no part of the
 * ABI; include it in one source file of a plugin.
 *
 *   static lb_status* loss(void* self, const lb_step* step, lb_tensor** out) {
 *     lbc c = {0};
 *     lb_tensor* x = lbc_get(&c, step->batch, "latents");
 *     return lbc_end(&c, lbc_mse(&c, x, lbc_scale(&c, x, 0.5)), out);
 *   }
 *
 * Every lbc_ function that returns a tensor returns a new one that the scope `c` releases. After a
 * failure they return NULL and do nothing; lbc_end returns the failure. */
#ifndef LIMBECK_C_H
#define LIMBECK_C_H

#include <stdio.h>
#include <string.h>

#include <limbeck/abi.h>

/* Set by lbc_init, which a plugin's init calls. */
static const lb_host* lbc_host;
static const lb_tensor_api* lbc_tensors;
static const lb_dispatch_api* lbc_dispatch;
static const lb_batch_api* lbc_batches;
static const lb_config_api* lbc_config;
static const lb_random_api* lbc_random;

/* Makes a status. */
static inline lb_status* lbc_fail(lb_code code, const char* message) {
  return lbc_host->fail(lbc_host, code, __FILE__, __LINE__, message);
}

static inline lb_status* lbc_init(const lb_host* host) {
  lbc_host = host;
  lbc_tensors = (const lb_tensor_api*)host->get_service(host, "limbeck.tensor/1");
  lbc_dispatch = (const lb_dispatch_api*)host->get_service(host, "limbeck.dispatch/1");
  lbc_batches = (const lb_batch_api*)host->get_service(host, "limbeck.batch/1");
  lbc_config = (const lb_config_api*)host->get_service(host, "limbeck.config/1");
  lbc_random = (const lb_random_api*)host->get_service(host, "limbeck.random/1");
  if (lbc_tensors && lbc_dispatch && lbc_batches && lbc_config && lbc_random) {
    return NULL;
  }
  return lbc_fail(LB_VERSION_MISMATCH,
                  "this host does not have tensor/1, dispatch/1, batch/1, config/1 and random/1");
}

/* The init of a plugin that has nothing else to do. */
static inline lb_status* lbc_plugin_init(const lb_host* host, lb_state** out) LB_NOEXCEPT {
  (void)out;
  return lbc_init(host);
}

/* Makes the library a plugin with these components, once, at its end:
 *   LBC_PLUGIN(&first, &second)
 * limbeck_add_plugin() of the CMake package defines LB_PLUGIN_ID, _VERSION and _LICENSE. */
#define LBC_PLUGIN(...)                                                   \
  static const lb_component* const lbc_components[] = {__VA_ARGS__};      \
  static const lb_plugin lbc_plugin = {                                   \
      .struct_size = sizeof(lb_plugin),                                   \
      .abi_minor = LB_ABI_MINOR,                                          \
      .id = LB_PLUGIN_ID,                                                 \
      .version = LB_PLUGIN_VERSION,                                       \
      .license = LB_PLUGIN_LICENSE,                                       \
      .n_components = sizeof(lbc_components) / sizeof(lbc_components[0]), \
      .components = lbc_components,                                       \
      .init = lbc_plugin_init,                                            \
  };                                                                      \
  const lb_plugin* limbeck_plugin_v1(void) { return &lbc_plugin; }

/* A scope: the first failure and the tensors to release. Starts as {0}. */
enum { LBC_MOST = 64 };
typedef struct lbc {
  lb_status* status;
  lb_tensor* held[LBC_MOST];
  uint32_t count;
} lbc;

/* Puts a tensor that the caller owns under the scope. */
static inline lb_tensor* lbc_hold(lbc* c, lb_tensor* taken) {
  if (c->status == NULL && c->count < LBC_MOST) {
    c->held[c->count] = taken;
    return c->held[c->count++];
  }
  lbc_tensors->release(taken);
  if (c->status == NULL) {
    c->status = lbc_fail(LB_OUT_OF_RANGE, "more than 64 tensors in one scope");
  }
  return NULL;
}
/* Keeps the first of several failures. Returns whether all is well. */
static inline int lbc_ok(lbc* c, lb_status* status) {
  if (c->status == NULL) {
    c->status = status;
  } else {
    lbc_host->drop(status);
  }
  return c->status == NULL;
}
/* Ends the scope: gives `result`, which may be NULL, to the caller and returns the failure. */
static inline lb_status* lbc_end(lbc* c, const lb_tensor* result, lb_tensor** out) {
  if (c->status == NULL && result != NULL && out != NULL) {
    *out = lbc_tensors->retain(result);
  }
  while (c->count > 0) {
    lbc_tensors->release(c->held[--c->count]);
  }
  return c->status;
}

/* ---- Arguments */

static inline lb_arg lbc_arg(lb_arg_kind kind) {
  lb_arg arg;
  memset(&arg, 0, sizeof arg);
  arg.kind = kind;
  return arg;
}
static inline lb_arg lbc_t(lb_tensor* tensor) {
  lb_arg arg = lbc_arg(tensor == NULL ? LB_ARG_NONE : LB_ARG_TENSOR);
  arg.u.tensor = tensor;
  return arg;
}
static inline lb_arg lbc_i(int64_t value) {
  lb_arg arg = lbc_arg(LB_ARG_INT);
  arg.u.i = value;
  return arg;
}
static inline lb_arg lbc_f(double value) {
  lb_arg arg = lbc_arg(LB_ARG_FLOAT);
  arg.u.f = value;
  return arg;
}
static inline lb_arg lbc_bool(int value) {
  lb_arg arg = lbc_arg(LB_ARG_BOOL);
  arg.u.i = value != 0;
  return arg;
}
static inline lb_arg lbc_ints(const int64_t* values, uint32_t count) {
  lb_arg arg = lbc_arg(LB_ARG_INTS);
  arg.count = count;
  arg.u.ints = values;
  return arg;
}

/* ---- Operations */

/* Any operator with one result. `op` is a static of the caller that starts as NULL. */
static inline lb_tensor* lbc_op(lbc* c,
                                const lb_op** op,
                                const char* name,
                                const char* overload,
                                const lb_arg* args,
                                uint32_t count) {
  lb_arg out = lbc_arg(LB_ARG_NONE);
  if (c->status == NULL && *op == NULL) {
    c->status = lbc_dispatch->find(name, overload, op);
  }
  if (c->status == NULL) {
    c->status = lbc_dispatch->call(*op, args, count, &out, 1);
  }
  return c->status == NULL ? lbc_hold(c, out.u.tensor) : NULL;
}

#define LBC_UNARY(function, name)                           \
  static inline lb_tensor* function(lbc* c, lb_tensor* x) { \
    static const lb_op* op;                                 \
    lb_arg args[1];                                         \
    args[0] = lbc_t(x);                                     \
    return lbc_op(c, &op, name, "", args, 1);               \
  }
#define LBC_BINARY(function, name, overload)                              \
  static inline lb_tensor* function(lbc* c, lb_tensor* a, lb_tensor* b) { \
    static const lb_op* op;                                               \
    lb_arg args[2];                                                       \
    args[0] = lbc_t(a);                                                   \
    args[1] = lbc_t(b);                                                   \
    return lbc_op(c, &op, name, overload, args, 2);                       \
  }
LBC_BINARY(lbc_add, "aten::add", "Tensor")
LBC_BINARY(lbc_sub, "aten::sub", "Tensor")
LBC_BINARY(lbc_mul, "aten::mul", "Tensor")
LBC_BINARY(lbc_div, "aten::div", "Tensor")
LBC_BINARY(lbc_matmul, "aten::matmul", "")
LBC_BINARY(lbc_mse, "aten::mse_loss", "") /* mean of (a - b)^2 */
LBC_UNARY(lbc_neg, "aten::neg")
LBC_UNARY(lbc_exp, "aten::exp")
LBC_UNARY(lbc_log, "aten::log")
LBC_UNARY(lbc_sqrt, "aten::sqrt")
LBC_UNARY(lbc_square, "aten::square")
LBC_UNARY(lbc_abs, "aten::abs")
LBC_UNARY(lbc_sigmoid, "aten::sigmoid")
LBC_UNARY(lbc_sum, "aten::sum")
LBC_UNARY(lbc_mean, "aten::mean")
LBC_UNARY(lbc_detach, "aten::detach")
#undef LBC_UNARY
#undef LBC_BINARY

/* a * factor */
static inline lb_tensor* lbc_scale(lbc* c, lb_tensor* a, double factor) {
  static const lb_op* op;
  lb_arg args[2];
  args[0] = lbc_t(a);
  args[1] = lbc_f(factor);
  return lbc_op(c, &op, "aten::mul", "Scalar", args, 2);
}
/* a + term */
static inline lb_tensor* lbc_shift(lbc* c, lb_tensor* a, double term) {
  static const lb_op* op;
  lb_arg args[2];
  args[0] = lbc_t(a);
  args[1] = lbc_f(term);
  return lbc_op(c, &op, "aten::add", "Scalar", args, 2);
}
static inline lb_tensor* lbc_view(lbc* c, lb_tensor* a, const int64_t* sizes, uint32_t count) {
  static const lb_op* op;
  lb_arg args[2];
  args[0] = lbc_t(a);
  args[1] = lbc_ints(sizes, count);
  return lbc_op(c, &op, "aten::view", "", args, 2);
}

/* ---- Batches and draws */

/* The tensor of that name, lent by the batch: not under the scope. */
static inline lb_tensor* lbc_get(lbc* c, const lb_batch* batch, const char* name) {
  lb_tensor* tensor = c->status == NULL ? lbc_batches->get(batch, name) : NULL;
  if (tensor == NULL && c->status == NULL) {
    char message[128];
    snprintf(message, sizeof message, "no tensor '%s' in the batch", name);
    c->status = lbc_fail(LB_NOT_FOUND, message);
  }
  return tensor;
}
/* Adds or replaces a tensor. */
static inline void lbc_put(lbc* c, lb_batch* batch, const char* name, const lb_tensor* tensor) {
  if (c->status == NULL) {
    lbc_batches->put(batch, name, lbc_tensors->retain(tensor));
  }
}
/* Standard normal or uniform numbers of the shape of `like`, keyed by their sample. */
static inline lb_tensor* lbc_draw(
    lbc* c, const lb_step* step, const char* purpose, const lb_tensor* like, int uniform) {
  lb_key key;
  lb_tensor_info info;
  lb_tensor* out = NULL;
  memset(&key, 0, sizeof key);
  memset(&info, 0, sizeof info);
  key.struct_size = (uint32_t)sizeof key;
  key.stream = LB_NOISE;
  key.purpose = purpose;
  key.step = step->step;
  key.micro = step->micro;
  key.index = (step->round << 24) + (step->nth << 16);
  info.struct_size = (uint32_t)sizeof info;
  if (c->status == NULL) {
    c->status = lbc_tensors->info(like, &info);
  }
  if (c->status == NULL) {
    c->status =
        (uniform ? lbc_random->uniform : lbc_random->normal)(&key, info.sizes, info.ndim, &out);
  }
  return c->status == NULL ? lbc_hold(c, out) : NULL;
}

#endif /* LIMBECK_C_H */
