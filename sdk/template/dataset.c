/* SPDX-License-Identifier: Apache-2.0 */
/* A data set: samples by index. Order, shuffling, epochs and batches are the host's. A manifest
 * uses it like this:
 *
 *   [training.data]
 *   type = "my_plugin"
 *   samples = 64
 */
#include <stdlib.h>

#include <limbeck/c.h>

enum { CHANNELS = 4, FRAMES = 2, SIDE = 8, TOKENS = 4, WIDTH = 32 };

/* Stripes that move from frame to frame, each with a text that names it. */
typedef struct my_dataset {
  int64_t samples;
} my_dataset;

static lb_status* open(lb_state* plugin,
                       const lb_config* config,
                       const lb_source* source,
                       void** out) {
  (void)plugin;
  (void)source;
  my_dataset* self = malloc(sizeof *self);
  if (self == NULL) {
    return lbc_fail(LB_HOST_OOM, "out of memory");
  }
  self->samples = lbc_config->integer(config, "samples");
  *out = self;
  return NULL;
}

static void close(void* self) { free(self); }

static int64_t length(void* instance) {
  const my_dataset* self = instance;
  return self->samples;
}

static const int64_t latents_sizes[] = {CHANNELS, FRAMES, SIDE, SIDE};
static const int64_t context_sizes[] = {TOKENS, WIDTH};

static lb_status* fields(void* self, lb_fields* out) {
  static const lb_field all[] = {
      {.name = "raw_latents", .sizes = latents_sizes, .dtype = LB_F32, .ndim = 4},
      {.name = "context", .sizes = context_sizes, .dtype = LB_F32, .ndim = 2},
      {.name = "caption", .flags = LB_FIELD_TEXT},
  };
  (void)self;
  *out = (lb_fields){sizeof(lb_field), sizeof all / sizeof all[0], all};
  return NULL;
}

/* Puts a tensor with a copy of these numbers into the sample. */
static lb_status* put(
    lb_batch* sample, const char* name, const int64_t* sizes, uint32_t ndim, const float* numbers) {
  lb_tensor* tensor = NULL;
  lb_status* status = lbc_tensors->create(LB_F32, sizes, ndim, numbers, LB_CPU, &tensor);
  if (status == NULL) {
    lbc_batches->put(sample, name, tensor); /* takes the tensor over */
  }
  return status;
}

static lb_status* read(void* self, int64_t index, lb_batch* sample) {
  float latents[CHANNELS * FRAMES * SIDE * SIDE];
  float context[TOKENS * WIDTH];
  char caption[64];
  const int64_t period = 2 + index % 5;
  (void)self;
  for (int64_t i = 0; i < CHANNELS * FRAMES * SIDE * SIDE; ++i) {
    const int64_t frame = i / (SIDE * SIDE) % FRAMES;
    latents[i] = (i % SIDE + frame + index) % period == 0 ? 1.0F : -1.0F;
  }
  for (int i = 0; i < TOKENS * WIDTH; ++i) {
    context[i] = (float)period / 10.0F;
  }
  snprintf(caption, sizeof caption, "stripes, one of %lld", (long long)period);
  lbc_batches->put_text(sample, "caption", 0, caption);

  lb_status* status = put(sample, "raw_latents", latents_sizes, 4, latents);
  return status != NULL ? status : put(sample, "context", context_sizes, 2, context);
}

static const lb_option options[] = {
    {.name = "samples",
     .type = LB_INT,
     .doc = "How many there are.",
     .fallback = "64",
     .range = "[1, inf)"},
};
static const lb_dataset_vtable vtable = {
    .struct_size = sizeof vtable,
    .open = open,
    .close = close,
    .length = length,
    .fields = fields,
    .read = read,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.dataset/1",
    .name = "my_plugin",
    .doc = "Moving stripes.",
    .options = LB_OPTIONS(options),
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
