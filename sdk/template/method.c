/* SPDX-License-Identifier: Apache-2.0 */
/* A training method: it names the roles it needs and computes the loss of a micro-step. The host
 * has the weights, the optimizer, the random numbers and the loop. A manifest uses it like this:
 *
 *   [method]
 *   type = "my_plugin"
 */
#include <limbeck/c.h>

enum { STUDENT = 0 };

static lb_status* create(lb_state* plugin, const lb_config* config, void** out) {
  (void)plugin;
  (void)config;
  *out = NULL; /* it keeps nothing between steps */
  return NULL;
}

static void destroy(void* self) { (void)self; }

/* Flow matching: mean((velocity - (noise - latents))^2) */
static lb_status* loss(void* self, const lb_step* step, lb_tensor** out) {
  lbc c = {0}; /* the first failure sticks; lbc_end releases every tensor made under it */
  (void)self;
  lb_batch* said = lbc_batches->create(NULL);
  lbc_ok(&c, step->models->run(step->models, STUDENT, 0, step->batch, said));
  lb_tensor* target =
      lbc_sub(&c, lbc_get(&c, step->batch, "noise"), lbc_get(&c, step->batch, "latents"));
  lb_tensor* result = lbc_mse(&c, lbc_get(&c, said, "velocity"), target);
  lb_tensor* plain = lbc_detach(&c, result);
  if (c.status == NULL) {
    step->metrics->tensor(step->metrics, "loss", plain, LB_MEAN);
  }
  lbc_batches->destroy(said);
  return lbc_end(&c, result, out);
}

static const lb_role roles[] = {
    {"student", "The network that learns.", "limbeck.video-dit/1", LB_ROLE_TRAINED, 0},
};
/* The network reads what it needs of the batch; "?" marks what may be missing. */
static const char* const reads[] = {"latents", "noise", "noisy", "timestep", "context?", NULL};
static const lb_method_vtable vtable = {
    .struct_size = sizeof vtable,
    .roles = LB_ROLES(roles),
    .reads = reads,
    .create = create,
    .destroy = destroy,
    .loss = loss,
};
static const lb_component component = {
    .struct_size = sizeof component,
    .kind = "limbeck.method/1",
    .name = "my_plugin",
    .doc = "Flow matching.",
    .options = {sizeof(lb_option), 0, NULL},
    .vtable = &vtable,
};

LBC_PLUGIN(&component)
