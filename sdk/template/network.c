/* SPDX-License-Identifier: Apache-2.0 */
/* A network: it declares parameters, which the host allocates, trains, averages and saves, and says
 * how to get from inputs to outputs. The capability that it provides fixes their names. A manifest
 * uses it like this:
 *
 *   [models.student]
 *   type = "my_plugin"
 *   [models.student.config]
 *   channels = 4
 */
#include <stdlib.h>

#include <limbeck/c.h>

/* velocity = W noisy + b at every latent position. */
typedef struct my_network {
  int64_t channels;
  lb_param weight;
  lb_param bias;
} my_network;

static lb_status* create(lb_state* plugin,
                         const lb_config* config,
                         lb_builder* builder,
                         void** out) {
  (void)plugin;
  lbc c = {0}; /* the first failure sticks */
  my_network* self = malloc(sizeof *self);
  if (self == NULL) {
    return lbc_fail(LB_HOST_OOM, "out of memory");
  }
  self->channels = lbc_config->integer(config, "channels");
  const int64_t square[] = {self->channels, self->channels};
  const lb_param_spec weight = {
      .struct_size = sizeof weight,
      .dtype = LB_F32,
      .name = "proj.weight",
      .sizes = square,
      .ndim = 2,
      .flags = LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR,
      .init = "xavier_uniform",
  };
  const lb_param_spec bias = {
      .struct_size = sizeof bias,
      .dtype = LB_F32,
      .name = "proj.bias",
      .sizes = square,
      .ndim = 1,
      .flags = LB_PARAM_NO_DECAY,
      .init = "zeros",
  };
  if (lbc_ok(&c, builder->param(builder, LB_ROOT, &weight, &self->weight)) &&
      lbc_ok(&c, builder->param(builder, LB_ROOT, &bias, &self->bias))) {
    *out = self;
  } else {
    free(self);
  }
  return lbc_end(&c, NULL, NULL);
}

static void destroy(void* self) { free(self); }

static lb_status* describe(void* instance, lb_batch* facts) {
  const my_network* self = instance;
  lbc_batches->put_number(facts, "latent_channels", (double)self->channels);
  return NULL;
}

/* The work of the one unit. It may run again during backward, so it has a copy of what it needs. */
static lb_status* run(void* copy, const lb_unit_call* call) {
  const my_network* self = copy;
  return call->ops->linear(call, self->weight, self->bias, call->in[0], &call->out[0]);
}

static void release(void* copy) { free(copy); }

static lb_tensor* transpose(lbc* c, lb_tensor* x) {
  static const lb_op* op;
  lb_arg args[] = {lbc_t(x), lbc_i(1), lbc_i(2)};
  return lbc_op(c, &op, "aten::transpose", "int", args, 3);
}

static lb_tensor* reshape(lbc* c, lb_tensor* x, const int64_t* sizes, uint32_t count) {
  static const lb_op* op;
  lb_arg args[] = {lbc_t(x), lbc_ints(sizes, count)};
  return lbc_op(c, &op, "aten::reshape", "", args, 2);
}

static lb_status* forward(void* instance,
                          const lb_units* units,
                          const lb_batch* in,
                          lb_batch* out) {
  lbc c = {0};
  lb_tensor_info info = {.struct_size = sizeof info};
  my_network* copy = malloc(sizeof *copy);
  if (copy == NULL) {
    return lbc_fail(LB_HOST_OOM, "out of memory");
  }
  *copy = *(const my_network*)instance;
  const lb_body body = {.run = run, .self = copy, .release = release};

  lb_tensor* noisy = lbc_get(&c, in, "noisy"); /* [b, c, T, H, W] */
  if (noisy != NULL) {
    lbc_ok(&c, lbc_tensors->info(noisy, &info));
  }
  const int64_t flat[] = {info.ndim == 5 ? info.sizes[0] : 0, copy->channels, -1};
  lb_tensor* x = transpose(&c, reshape(&c, noisy, flat, 3)); /* [b, positions, c] */
  lb_tensor* y = NULL;
  if (c.status == NULL) {
    lbc_ok(&c, units->run(units, LB_ROOT, &body, &x, 1, &y, 1)); /* takes the copy over */
    y = lbc_hold(&c, y);
  } else {
    free(copy);
  }
  lbc_put(&c, out, "velocity", reshape(&c, transpose(&c, y), info.sizes, info.ndim));
  return lbc_end(&c, NULL, NULL);
}

static const lb_option options[] = {
    {.name = "channels",
     .type = LB_INT,
     .doc = "Channels of the latents.",
     .fallback = "16",
     .range = "[1, inf)"},
};
static const char* const provides[] = {"limbeck.video-dit/1", NULL};
static const lb_model_vtable vtable = {
    .struct_size = sizeof vtable,
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .forward = forward,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.model/1",
    .name = "my_plugin",
    .doc = "A linear layer at every latent position.",
    .options = LB_OPTIONS(options),
    .provides = provides,
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
