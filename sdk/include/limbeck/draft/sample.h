/* SPDX-License-Identifier: Apache-2.0 */
/* Draft: "limbeck.sample/1". A callback that samples on request; what `limbeck sample` runs.
 * Asked for with get_extension() of the component. A draft may change or go in any version. */
#ifndef LIMBECK_DRAFT_SAMPLE_H
#define LIMBECK_DRAFT_SAMPLE_H

#include <limbeck/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LB_SAMPLE_EXTENSION "limbeck.sample/1"

typedef struct lb_sample_vtable {
  uint32_t struct_size;
  uint32_t reserved;
  /* `self` is the callback's instance. `prompts` has the text "prompt", one row per video, and the
   * text "output": the folder to write to, which exists. `event` gives networks, facts and
   * metrics as in LB_ON_VALIDATE. [control] */
  lb_status* (*sample)(void* self, const lb_event* event, const lb_batch* prompts)LB_NOEXCEPT;
} lb_sample_vtable;

#ifdef __cplusplus
}
#endif
#endif /* LIMBECK_DRAFT_SAMPLE_H */
