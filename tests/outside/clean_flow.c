/* SPDX-License-Identifier: Apache-2.0 */
/* Flow matching whose loss is on the clean sample that a velocity implies:
 *   mean((noisy - sigma velocity - latents)^2) */
#include <limbeck/c.h>

static int instance;

static lb_status* init(const lb_host* host, lb_state** out) {
  (void)out;
  return lbc_init(host);
}

static lb_status* create(lb_state* plugin, const lb_config* config, void** out) {
  (void)plugin;
  (void)config;
  *out = &instance;
  return NULL;
}

static void destroy(void* self) { (void)self; }

static lb_status* loss(void* self, const lb_step* step, lb_tensor** out) {
  lbc c = {0};
  lb_batch* said = lbc_batches->create(NULL);
  lb_tensor_info info = {.struct_size = sizeof info};
  (void)self;
  if (lbc_ok(&c, step->models->run(step->models, 0, 0, step->batch, said))) {
    lb_tensor* sigma = lbc_get(&c, step->batch, "sigma");
    if (sigma != NULL) {
      c.status = lbc_tensors->info(sigma, &info);
    }
    const int64_t wide[] = {info.ndim > 0 ? info.sizes[0] : 0, 1, 1, 1, 1};
    lb_tensor* noise = lbc_mul(&c, lbc_view(&c, sigma, wide, 5), lbc_get(&c, said, "velocity"));
    lb_tensor* clean = lbc_sub(&c, lbc_get(&c, step->batch, "noisy"), noise);
    *out = NULL;
    lb_tensor* result = lbc_mse(&c, clean, lbc_get(&c, step->batch, "latents"));
    if (c.status == NULL) {
      step->metrics->tensor(step->metrics, "loss", result, LB_MEAN);
    }
    lbc_batches->destroy(said);
    return lbc_end(&c, result, out);
  }
  lbc_batches->destroy(said);
  return lbc_end(&c, NULL, NULL);
}

static const lb_role roles[] = {
    {"student", "The network that is trained.", "limbeck.video-dit/1", LB_ROLE_TRAINED, 0}};
static const char* const reads[] = {"latents", "noisy", "timestep", "sigma", "context?", NULL};
static const lb_method_vtable vtable = {.struct_size = sizeof vtable,
                                        .roles = LB_ROLES(roles),
                                        .reads = reads,
                                        .create = create,
                                        .destroy = destroy,
                                        .loss = loss};
static const lb_component method = {.struct_size = sizeof method,
                                    .kind = "limbeck.method/1",
                                    .name = "clean_flow",
                                    .doc = "Flow matching with a loss on the clean sample.",
                                    .options = {sizeof(lb_option), 0, NULL},
                                    .vtable = &vtable};
static const lb_component* const components[] = {&method};
static const lb_plugin plugin = {.struct_size = sizeof plugin,
                                 .abi_minor = LB_ABI_MINOR,
                                 .id = LB_PLUGIN_ID,
                                 .version = LB_PLUGIN_VERSION,
                                 .license = LB_PLUGIN_LICENSE,
                                 .n_components = 1,
                                 .components = components,
                                 .init = init};

const lb_plugin* limbeck_plugin_v1(void) { return &plugin; }
