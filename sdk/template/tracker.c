/* SPDX-License-Identifier: Apache-2.0 */
/* A tracker: it gets the metrics and files of a run. A manifest uses it like this:
 *
 *   [training.tracker]
 *   trackers = ["my_plugin"]
 */
#include <stdio.h>

#include <limbeck/c.h>

/* Metrics as lines of step, name and value, in metrics.csv of the run's folder. */
static lb_status* open(lb_state* plugin,
                       const lb_config* config,
                       const lb_tracked_run* run,
                       void** out) {
  (void)plugin;
  (void)config;
  char path[4096];
  snprintf(path, sizeof path, "%s/metrics.csv", run->directory);
  FILE* file = fopen(path, "a");
  if (file == NULL) {
    return lbc_fail(LB_PERMISSION_DENIED, "cannot write metrics.csv in the run's folder");
  }
  *out = file;
  return NULL;
}

static lb_status* scalars(
    void* self, int64_t step, const char* const* names, const double* values, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    fprintf(self, "%lld,%s,%.9g\n", (long long)step, names[i], values[i]);
  }
  return fflush(self) == 0 ? NULL : lbc_fail(LB_DATA_LOSS, "cannot write metrics.csv");
}

static void close(void* self, int32_t succeeded) {
  (void)succeeded;
  fclose(self);
}

static const lb_tracker_vtable vtable = {
    .struct_size = sizeof vtable,
    .open = open,
    .scalars = scalars,
    .close = close,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.tracker/1",
    .name = "my_plugin",
    .doc = "Metrics as comma-separated lines.",
    .options = {sizeof(lb_option), 0, NULL},
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
