/* SPDX-License-Identifier: Apache-2.0 */
/* A prepare hook: it changes samples before the method sees them. A manifest uses it like this:
 *
 *   [[prepare]]
 *   type = "my_plugin"
 *   scale = 1.0
 */
#include <stdlib.h>

#include <limbeck/c.h>

/* Multiplies latents by a number. It belongs before the hook that draws noise. */
typedef struct my_prepare {
  double scale;
} my_prepare;

static lb_status* create(lb_state* plugin, const lb_config* config, void** out) {
  (void)plugin;
  my_prepare* self = malloc(sizeof *self);
  if (self == NULL) {
    return lbc_fail(LB_HOST_OOM, "out of memory");
  }
  self->scale = lbc_config->number(config, "scale");
  *out = self;
  return NULL;
}

static void destroy(void* self) { free(self); }

static lb_status* prepare(void* instance, const lb_step* step, lb_batch* batch) {
  const my_prepare* self = instance;
  lbc c = {0}; /* the first failure sticks; lbc_end releases every tensor made under it */
  (void)step;
  lb_tensor* scaled = lbc_scale(&c, lbc_get(&c, batch, "raw_latents"), self->scale);
  lbc_put(&c, batch, "raw_latents", scaled);
  return lbc_end(&c, NULL, NULL);
}

static const lb_option options[] = {
    {.name = "scale", .type = LB_FLOAT, .doc = "Factor of the latents.", .fallback = "1.0"},
};
static const char* const reads[] = {"raw_latents", NULL};
static const char* const writes[] = {"raw_latents", NULL};
static const lb_prepare_vtable vtable = {
    .struct_size = sizeof vtable,
    .reads = reads,
    .writes = writes,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.prepare/1",
    .name = "my_plugin",
    .doc = "Scales latents.",
    .options = LB_OPTIONS(options),
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
