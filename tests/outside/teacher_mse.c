/* SPDX-License-Identifier: Apache-2.0 */
/* A loss that learns from a teacher, with abi.h alone: the mean squared distance of the trained
 * network's velocity to that of a frozen one on the same mixture. */
#include <limbeck/abi.h>

static const lb_host* host;
static const lb_batch_api* batches;
static const lb_dispatch_api* dispatch;
static const lb_op* mse;
static int instance; /* there is no state */

static lb_status* fail(lb_code code, const char* message) {
  return host->fail(host, code, __FILE__, __LINE__, message);
}

static lb_status* init(const lb_host* given, lb_state** out) {
  (void)out;
  host = given;
  batches = (const lb_batch_api*)host->get_service(host, "limbeck.batch/1");
  dispatch = (const lb_dispatch_api*)host->get_service(host, "limbeck.dispatch/1");
  return batches && dispatch ? dispatch->find("aten::mse_loss", "", &mse)
                             : fail(LB_VERSION_MISMATCH, "needs limbeck.batch/1 and dispatch/1");
}

static lb_status* create(lb_state* plugin, const lb_config* config, void** out) {
  (void)plugin;
  (void)config;
  *out = &instance;
  return NULL;
}

static void destroy(void* self) { (void)self; }

static lb_status* loss(void* self, const lb_step* step, const lb_batch* values, lb_tensor** out) {
  const lb_models* models = step->models;
  (void)self;
  if (batches->number(models->facts(models, 0), "time_scale", 1000.0) != 1000.0) {
    return fail(LB_UNIMPLEMENTED, "the teacher counts time otherwise than the batch");
  }
  lb_batch* said = batches->create(NULL);
  lb_status* status = models->run(models, 0, LB_RUN_NO_GRAD, values, said);
  if (status == NULL) {
    lb_arg result = {.kind = LB_ARG_NONE};
    const lb_arg args[] = {{.kind = LB_ARG_TENSOR, .u.tensor = batches->get(values, "velocity")},
                           {.kind = LB_ARG_TENSOR, .u.tensor = batches->get(said, "velocity")}};
    status = args[0].u.tensor && args[1].u.tensor ? dispatch->call(mse, args, 2, &result, 1)
                                                  : fail(LB_NOT_FOUND, "no 'velocity'");
    *out = result.u.tensor;
  }
  batches->destroy(said);
  return status;
}

static const lb_role needs[] = {{"teacher", "Knows better.", "limbeck.video-dit/1", 0, 0}};
static const char* const reads[] = {"velocity", "noisy", "timestep", "context?", NULL};
static const lb_loss_vtable vtable = {.struct_size = sizeof vtable,
                                      .needs = LB_ROLES(needs),
                                      .reads = reads,
                                      .create = create,
                                      .destroy = destroy,
                                      .loss = loss};
static const lb_component component = {.struct_size = sizeof component,
                                       .kind = "limbeck.loss/1",
                                       .name = "teacher_mse",
                                       .doc = "Squared distance to a teacher's velocity.",
                                       .options = {sizeof(lb_option), 0, NULL},
                                       .vtable = &vtable};
static const lb_component* const components[] = {&component};
static const lb_plugin plugin = {.struct_size = sizeof plugin,
                                 .abi_minor = LB_ABI_MINOR,
                                 .id = LB_PLUGIN_ID,
                                 .version = LB_PLUGIN_VERSION,
                                 .license = LB_PLUGIN_LICENSE,
                                 .n_components = 1,
                                 .components = components,
                                 .init = init};

const lb_plugin* limbeck_plugin_v1(void) { return &plugin; }
