// SPDX-License-Identifier: Apache-2.0
// The keys that the host itself understands, as tables of options: names, types, ranges, defaults.
// Keys that users of this field know from other trainers and that are not built yet are listed as
// unavailable, so that nobody believes they have an effect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

namespace limbeck {

std::vector<lb_option> top_options();
std::vector<lb_option> run_options();
std::vector<lb_option> pipeline_options();

// What a table may say beside the options of the component it uses.
std::vector<lb_option> role_options();      // [models.<role>]; the component's are in its .config
std::vector<lb_option> method_options();    // [method]
std::vector<lb_option> prepare_options();   // [[prepare]]
std::vector<lb_option> loss_options();      // [[losses]]
std::vector<lb_option> callback_options();  // [callbacks.<name>]
std::vector<lb_option> data_options();      // [training.data]

std::vector<lb_option> training_options();
std::vector<lb_option> optimizer_options();  // [training.optimizer], [models.<role>.optimizer]
std::vector<lb_option> ema_options();
std::vector<lb_option> lora_options();  // [models.<role>.lora]
std::vector<lb_option> loop_options();
std::vector<lb_option> performance_options();
std::vector<lb_option> distributed_options();
std::vector<lb_option> checkpoint_options();
std::vector<lb_option> tracker_options();  // [training.tracker], less the tables of its trackers
std::vector<lb_option> training_model_options();

// The core's own callbacks.
std::vector<lb_option> grad_clip_options();
std::vector<lb_option> ema_callback_options();

// Is this the path of a key that components take by an alias, such as "training.data.x"?
bool is_forwarded(const std::string& path);

// The table that has a key of this name, should somebody write it elsewhere; empty: none, or the
// name says too little ("type").
std::string home_of(std::string_view key);

// The same options, none of which has to be there and none of which has a default.
std::vector<lb_option> all_optional(std::vector<lb_option> options);

}  // namespace limbeck
