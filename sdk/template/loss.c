/* SPDX-License-Identifier: Apache-2.0 */
/* A term of the loss. A manifest uses it like this:
 *
 *   plugins = ["wan", "sft", "basics", "parquet", "./build/my_plugin.so"]
 *
 *   [[losses]]
 *   type = "my_plugin"
 *   weight = 1.0
 *   delta = 0.03
 */
#include <stdlib.h>

#include <limbeck/c.h>

/* mean(sqrt((prediction - target)^2 + delta^2) - delta): quadratic near zero, linear far from it */
typedef struct my_loss {
  double delta;
} my_loss;

static lb_status* create(lb_state* plugin, const lb_config* config, void** out) {
  (void)plugin;
  my_loss* self = malloc(sizeof *self);
  if (self == NULL) {
    return lbc_fail(LB_HOST_OOM, "out of memory");
  }
  self->delta = lbc_config->number(config, "delta");
  *out = self;
  return NULL;
}

static void destroy(void* self) { free(self); }

static lb_status* loss(void* instance,
                       const lb_step* step,
                       const lb_batch* values,
                       lb_tensor** out) {
  const my_loss* self = instance;
  lbc c = {0}; /* the first failure sticks; lbc_end releases every tensor made under it */
  lb_tensor* error = lbc_sub(&c, lbc_get(&c, values, "prediction"), lbc_get(&c, values, "target"));
  lb_tensor* square = lbc_shift(&c, lbc_square(&c, error), self->delta * self->delta);
  lb_tensor* result = lbc_mean(&c, lbc_shift(&c, lbc_sqrt(&c, square), -self->delta));
  lb_tensor* plain = lbc_detach(&c, lbc_mean(&c, lbc_abs(&c, error)));
  if (c.status == NULL) {
    step->metrics->tensor(step->metrics, "my_plugin/mean_error", plain, LB_MEAN);
  }
  return lbc_end(&c, result, out);
}

static const lb_option options[] = {
    {.name = "delta",
     .type = LB_FLOAT,
     .doc = "Error at which the loss turns from quadratic to linear.",
     .fallback = "0.03",
     .range = "(0, inf)"},
};
static const char* const reads[] = {"prediction", "target", NULL};
static const lb_loss_vtable vtable = {
    .struct_size = sizeof vtable,
    .reads = reads,
    .create = create,
    .destroy = destroy,
    .loss = loss,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.loss/1",
    .name = "my_plugin",
    .doc = "Pseudo-Huber loss of the prediction.",
    .options = LB_OPTIONS(options),
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
