/* SPDX-License-Identifier: Apache-2.0 */
/* A callback: it is told what happens between steps. A manifest uses it like this:
 *
 *   [callbacks.my_plugin]
 *   limit = 10.0
 */
#include <stdlib.h>

#include <limbeck/c.h>

/* Ends a run whose loss has gone astray: training is stopped, and saved as at any other end. */
typedef struct my_callback {
  double limit;
  double highest;
} my_callback;

static lb_status* create(lb_state* plugin, const lb_config* config, void** out) {
  (void)plugin;
  my_callback* self = malloc(sizeof *self);
  if (self == NULL) {
    return lbc_fail(LB_HOST_OOM, "out of memory");
  }
  self->limit = lbc_config->number(config, "limit");
  self->highest = 0;
  *out = self;
  return NULL;
}

static void destroy(void* self) { free(self); }

static lb_status* event(void* instance, const lb_event* event) {
  my_callback* self = instance;
  const double loss = lbc_batches->number(event->values, "loss", 0);
  self->highest = loss > self->highest ? loss : self->highest;
  event->metrics->scalar(event->metrics, "my_plugin/highest_loss", self->highest, LB_MAX);
  if (loss > self->limit) {
    event->request(event, LB_WANT_STOP);
  }
  return NULL;
}

/* What must survive between a checkpoint and the run that goes on from it. */
static lb_status* save(void* instance, lb_writer* state) {
  const my_callback* self = instance;
  return state->number(state, "highest", self->highest);
}

static lb_status* load(void* instance, const lb_reader* state) {
  my_callback* self = instance;
  return state->number(state, "highest", &self->highest);
}

static const lb_option options[] = {
    {.name = "limit",
     .type = LB_FLOAT,
     .doc = "Loss above which the run is stopped.",
     .fallback = "10.0",
     .range = "(0, inf)"},
};
static const lb_callback_vtable vtable = {
    .struct_size = sizeof vtable,
    .events = LB_BIT(LB_ON_STEP),
    .create = create,
    .destroy = destroy,
    .event = event,
    .save = save,
    .load = load,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.callback/1",
    .name = "my_plugin",
    .doc = "Stops a run whose loss is too high.",
    .options = LB_OPTIONS(options),
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
