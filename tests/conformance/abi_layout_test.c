/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of ABI 1.0 (LP64), member by member. Lines are added when a struct grows; none is ever
 * changed. Compiled as C11 with -Wpadded here, and as C++20 by abi_layout_cpp_test.cpp. */
#include <stddef.h>

#include <limbeck/abi.h>

#ifdef __cplusplus
#define LAYOUT_ASSERT static_assert
#else
#define LAYOUT_ASSERT _Static_assert
#endif
#define LAYOUT_SIZE(type, bytes) LAYOUT_ASSERT(sizeof(type) == (bytes), "size of " #type)
#define LAYOUT_AT(type, member, at) \
  LAYOUT_ASSERT(offsetof(type, member) == (at), "offset of " #type "." #member)

LAYOUT_ASSERT(sizeof(void*) == 8, "the numbers below are of the LP64 data model");
LAYOUT_ASSERT(LB_ABI_MAJOR == 1 && LB_ABI_MINOR == 0, "a new minor adds lines below");

LAYOUT_SIZE(lb_host, 112);
LAYOUT_AT(lb_host, struct_size, 0);
LAYOUT_AT(lb_host, abi_major, 4);
LAYOUT_AT(lb_host, abi_minor, 6);
LAYOUT_AT(lb_host, version, 8);
LAYOUT_AT(lb_host, torch_tag, 16);
LAYOUT_AT(lb_host, ctx, 24);
LAYOUT_AT(lb_host, get_service, 32);
LAYOUT_AT(lb_host, fail, 40);
LAYOUT_AT(lb_host, context, 48);
LAYOUT_AT(lb_host, code, 56);
LAYOUT_AT(lb_host, message, 64);
LAYOUT_AT(lb_host, drop, 72);
LAYOUT_AT(lb_host, log_enabled, 80);
LAYOUT_AT(lb_host, log, 88);
LAYOUT_AT(lb_host, progress, 96);
LAYOUT_AT(lb_host, poll_stop, 104);

LAYOUT_SIZE(lb_options, 16);
LAYOUT_AT(lb_options, stride, 0);
LAYOUT_AT(lb_options, count, 4);
LAYOUT_AT(lb_options, items, 8);

LAYOUT_SIZE(lb_option, 72);
LAYOUT_AT(lb_option, name, 0);
LAYOUT_AT(lb_option, type, 8);
LAYOUT_AT(lb_option, flags, 12);
LAYOUT_AT(lb_option, doc, 16);
LAYOUT_AT(lb_option, fallback, 24);
LAYOUT_AT(lb_option, range, 32);
LAYOUT_AT(lb_option, choices, 40);
LAYOUT_AT(lb_option, fields, 48);
LAYOUT_AT(lb_option, alias, 64);

LAYOUT_SIZE(lb_config_api, 56);
LAYOUT_AT(lb_config_api, struct_size, 0);
LAYOUT_AT(lb_config_api, integer, 8);
LAYOUT_AT(lb_config_api, number, 16);
LAYOUT_AT(lb_config_api, text, 24);
LAYOUT_AT(lb_config_api, length, 32);
LAYOUT_AT(lb_config_api, key, 40);
LAYOUT_AT(lb_config_api, given, 48);

LAYOUT_SIZE(lb_component, 72);
LAYOUT_AT(lb_component, struct_size, 0);
LAYOUT_AT(lb_component, state_version, 4);
LAYOUT_AT(lb_component, kind, 8);
LAYOUT_AT(lb_component, name, 16);
LAYOUT_AT(lb_component, doc, 24);
LAYOUT_AT(lb_component, options, 32);
LAYOUT_AT(lb_component, provides, 48);
LAYOUT_AT(lb_component, vtable, 56);
LAYOUT_AT(lb_component, get_extension, 64);

LAYOUT_SIZE(lb_plugin, 72);
LAYOUT_AT(lb_plugin, struct_size, 0);
LAYOUT_AT(lb_plugin, abi_minor, 4);
LAYOUT_AT(lb_plugin, min_host_minor, 6);
LAYOUT_AT(lb_plugin, id, 8);
LAYOUT_AT(lb_plugin, version, 16);
LAYOUT_AT(lb_plugin, license, 24);
LAYOUT_AT(lb_plugin, torch_tag, 32);
LAYOUT_AT(lb_plugin, n_components, 40);
LAYOUT_AT(lb_plugin, reserved, 44);
LAYOUT_AT(lb_plugin, components, 48);
LAYOUT_AT(lb_plugin, init, 56);
LAYOUT_AT(lb_plugin, shutdown, 64);

LAYOUT_SIZE(lb_tensor_info, 56);
LAYOUT_AT(lb_tensor_info, struct_size, 0);
LAYOUT_AT(lb_tensor_info, dtype, 4);
LAYOUT_AT(lb_tensor_info, device_type, 8);
LAYOUT_AT(lb_tensor_info, device_index, 12);
LAYOUT_AT(lb_tensor_info, ndim, 16);
LAYOUT_AT(lb_tensor_info, requires_grad, 20);
LAYOUT_AT(lb_tensor_info, sizes, 24);
LAYOUT_AT(lb_tensor_info, strides, 32);
LAYOUT_AT(lb_tensor_info, data, 40);
LAYOUT_AT(lb_tensor_info, stream, 48);

LAYOUT_SIZE(lb_grad_fn, 40);
LAYOUT_AT(lb_grad_fn, struct_size, 0);
LAYOUT_AT(lb_grad_fn, self, 8);
LAYOUT_AT(lb_grad_fn, forward, 16);
LAYOUT_AT(lb_grad_fn, backward, 24);
LAYOUT_AT(lb_grad_fn, release, 32);

LAYOUT_SIZE(lb_tensor_api, 88);
LAYOUT_AT(lb_tensor_api, struct_size, 0);
LAYOUT_AT(lb_tensor_api, retain, 8);
LAYOUT_AT(lb_tensor_api, release, 16);
LAYOUT_AT(lb_tensor_api, info, 24);
LAYOUT_AT(lb_tensor_api, create, 32);
LAYOUT_AT(lb_tensor_api, read, 40);
LAYOUT_AT(lb_tensor_api, apply, 48);
LAYOUT_AT(lb_tensor_api, gradient, 56);
LAYOUT_AT(lb_tensor_api, set_grad_mode, 64);
LAYOUT_AT(lb_tensor_api, to_dlpack, 72);
LAYOUT_AT(lb_tensor_api, from_dlpack, 80);

LAYOUT_SIZE(lb_arg, 16);
LAYOUT_AT(lb_arg, kind, 0);
LAYOUT_AT(lb_arg, count, 4);
LAYOUT_AT(lb_arg, u, 8);

LAYOUT_SIZE(lb_dispatch_api, 24);
LAYOUT_AT(lb_dispatch_api, struct_size, 0);
LAYOUT_AT(lb_dispatch_api, find, 8);
LAYOUT_AT(lb_dispatch_api, call, 16);

LAYOUT_SIZE(lb_batch_api, 128);
LAYOUT_AT(lb_batch_api, struct_size, 0);
LAYOUT_AT(lb_batch_api, create, 8);
LAYOUT_AT(lb_batch_api, destroy, 16);
LAYOUT_AT(lb_batch_api, get, 24);
LAYOUT_AT(lb_batch_api, put, 32);
LAYOUT_AT(lb_batch_api, number, 40);
LAYOUT_AT(lb_batch_api, put_number, 48);
LAYOUT_AT(lb_batch_api, text, 56);
LAYOUT_AT(lb_batch_api, put_text, 64);
LAYOUT_AT(lb_batch_api, batch, 72);
LAYOUT_AT(lb_batch_api, put_batch, 80);
LAYOUT_AT(lb_batch_api, remove, 88);
LAYOUT_AT(lb_batch_api, kind, 96);
LAYOUT_AT(lb_batch_api, rows, 104);
LAYOUT_AT(lb_batch_api, size, 112);
LAYOUT_AT(lb_batch_api, name_at, 120);

LAYOUT_SIZE(lb_param_spec, 40);
LAYOUT_AT(lb_param_spec, struct_size, 0);
LAYOUT_AT(lb_param_spec, dtype, 4);
LAYOUT_AT(lb_param_spec, name, 8);
LAYOUT_AT(lb_param_spec, sizes, 16);
LAYOUT_AT(lb_param_spec, ndim, 24);
LAYOUT_AT(lb_param_spec, flags, 28);
LAYOUT_AT(lb_param_spec, init, 32);

LAYOUT_SIZE(lb_builder, 48);
LAYOUT_AT(lb_builder, struct_size, 0);
LAYOUT_AT(lb_builder, ctx, 8);
LAYOUT_AT(lb_builder, unit, 16);
LAYOUT_AT(lb_builder, param, 24);
LAYOUT_AT(lb_builder, part, 32);
LAYOUT_AT(lb_builder, file, 40);

LAYOUT_SIZE(lb_attend, 64);
LAYOUT_AT(lb_attend, struct_size, 0);
LAYOUT_AT(lb_attend, pattern, 4);
LAYOUT_AT(lb_attend, flags, 8);
LAYOUT_AT(lb_attend, frames, 12);
LAYOUT_AT(lb_attend, height, 16);
LAYOUT_AT(lb_attend, width, 20);
LAYOUT_AT(lb_attend, first_block, 24);
LAYOUT_AT(lb_attend, block, 28);
LAYOUT_AT(lb_attend, window, 32);
LAYOUT_AT(lb_attend, sink, 36);
LAYOUT_AT(lb_attend, scale, 40);
LAYOUT_AT(lb_attend, sparsity, 48);
LAYOUT_AT(lb_attend, key_mask, 56);

LAYOUT_SIZE(lb_unit_call, 64);
LAYOUT_AT(lb_unit_call, struct_size, 0);
LAYOUT_AT(lb_unit_call, again, 4);
LAYOUT_AT(lb_unit_call, params, 8);
LAYOUT_AT(lb_unit_call, n_params, 16);
LAYOUT_AT(lb_unit_call, n_in, 20);
LAYOUT_AT(lb_unit_call, in, 24);
LAYOUT_AT(lb_unit_call, out, 32);
LAYOUT_AT(lb_unit_call, n_out, 40);
LAYOUT_AT(lb_unit_call, reserved, 44);
LAYOUT_AT(lb_unit_call, ctx, 48);
LAYOUT_AT(lb_unit_call, ops, 56);

LAYOUT_SIZE(lb_ops, 24);
LAYOUT_AT(lb_ops, struct_size, 0);
LAYOUT_AT(lb_ops, linear, 8);
LAYOUT_AT(lb_ops, attend, 16);

LAYOUT_SIZE(lb_body, 24);
LAYOUT_AT(lb_body, run, 0);
LAYOUT_AT(lb_body, self, 8);
LAYOUT_AT(lb_body, release, 16);

LAYOUT_SIZE(lb_units, 48);
LAYOUT_AT(lb_units, struct_size, 0);
LAYOUT_AT(lb_units, flags, 4);
LAYOUT_AT(lb_units, dtype, 8);
LAYOUT_AT(lb_units, ctx, 16);
LAYOUT_AT(lb_units, run, 24);
LAYOUT_AT(lb_units, split, 32);
LAYOUT_AT(lb_units, join, 40);

LAYOUT_SIZE(lb_model_vtable, 48);
LAYOUT_AT(lb_model_vtable, struct_size, 0);
LAYOUT_AT(lb_model_vtable, create, 8);
LAYOUT_AT(lb_model_vtable, destroy, 16);
LAYOUT_AT(lb_model_vtable, describe, 24);
LAYOUT_AT(lb_model_vtable, forward, 32);
LAYOUT_AT(lb_model_vtable, rename, 40);

LAYOUT_SIZE(lb_attention_vtable, 48);
LAYOUT_AT(lb_attention_vtable, struct_size, 0);
LAYOUT_AT(lb_attention_vtable, n_saved, 4);
LAYOUT_AT(lb_attention_vtable, create, 8);
LAYOUT_AT(lb_attention_vtable, destroy, 16);
LAYOUT_AT(lb_attention_vtable, supports, 24);
LAYOUT_AT(lb_attention_vtable, forward, 32);
LAYOUT_AT(lb_attention_vtable, backward, 40);

LAYOUT_SIZE(lb_role, 32);
LAYOUT_AT(lb_role, name, 0);
LAYOUT_AT(lb_role, doc, 8);
LAYOUT_AT(lb_role, capabilities, 16);
LAYOUT_AT(lb_role, flags, 24);
LAYOUT_AT(lb_role, of, 28);

LAYOUT_SIZE(lb_roles, 16);
LAYOUT_AT(lb_roles, stride, 0);
LAYOUT_AT(lb_roles, count, 4);
LAYOUT_AT(lb_roles, items, 8);

LAYOUT_SIZE(lb_models, 40);
LAYOUT_AT(lb_models, struct_size, 0);
LAYOUT_AT(lb_models, n_roles, 4);
LAYOUT_AT(lb_models, ctx, 8);
LAYOUT_AT(lb_models, run, 16);
LAYOUT_AT(lb_models, has, 24);
LAYOUT_AT(lb_models, facts, 32);

LAYOUT_SIZE(lb_metrics, 40);
LAYOUT_AT(lb_metrics, struct_size, 0);
LAYOUT_AT(lb_metrics, ctx, 8);
LAYOUT_AT(lb_metrics, scalar, 16);
LAYOUT_AT(lb_metrics, tensor, 24);
LAYOUT_AT(lb_metrics, file, 32);

LAYOUT_SIZE(lb_data, 40);
LAYOUT_AT(lb_data, struct_size, 0);
LAYOUT_AT(lb_data, ctx, 8);
LAYOUT_AT(lb_data, length, 16);
LAYOUT_AT(lb_data, next, 24);
LAYOUT_AT(lb_data, rows, 32);

LAYOUT_SIZE(lb_step, 96);
LAYOUT_AT(lb_step, struct_size, 0);
LAYOUT_AT(lb_step, round, 4);
LAYOUT_AT(lb_step, step, 8);
LAYOUT_AT(lb_step, micro, 16);
LAYOUT_AT(lb_step, micros, 20);
LAYOUT_AT(lb_step, roles, 24);
LAYOUT_AT(lb_step, nth, 28);
LAYOUT_AT(lb_step, ctx, 32);
LAYOUT_AT(lb_step, models, 40);
LAYOUT_AT(lb_step, data, 48);
LAYOUT_AT(lb_step, batch, 56);
LAYOUT_AT(lb_step, facts, 64);
LAYOUT_AT(lb_step, metrics, 72);
LAYOUT_AT(lb_step, backward, 80);
LAYOUT_AT(lb_step, terms, 88);

LAYOUT_SIZE(lb_plan, 40);
LAYOUT_AT(lb_plan, struct_size, 0);
LAYOUT_AT(lb_plan, ctx, 8);
LAYOUT_AT(lb_plan, round, 16);
LAYOUT_AT(lb_plan, update, 24);
LAYOUT_AT(lb_plan, average, 32);

LAYOUT_SIZE(lb_method_vtable, 88);
LAYOUT_AT(lb_method_vtable, struct_size, 0);
LAYOUT_AT(lb_method_vtable, roles, 8);
LAYOUT_AT(lb_method_vtable, reads, 24);
LAYOUT_AT(lb_method_vtable, create, 32);
LAYOUT_AT(lb_method_vtable, destroy, 40);
LAYOUT_AT(lb_method_vtable, start, 48);
LAYOUT_AT(lb_method_vtable, plan, 56);
LAYOUT_AT(lb_method_vtable, loss, 64);
LAYOUT_AT(lb_method_vtable, save, 72);
LAYOUT_AT(lb_method_vtable, load, 80);

LAYOUT_SIZE(lb_prepare_vtable, 80);
LAYOUT_AT(lb_prepare_vtable, struct_size, 0);
LAYOUT_AT(lb_prepare_vtable, needs, 8);
LAYOUT_AT(lb_prepare_vtable, reads, 24);
LAYOUT_AT(lb_prepare_vtable, writes, 32);
LAYOUT_AT(lb_prepare_vtable, create, 40);
LAYOUT_AT(lb_prepare_vtable, destroy, 48);
LAYOUT_AT(lb_prepare_vtable, prepare, 56);
LAYOUT_AT(lb_prepare_vtable, save, 64);
LAYOUT_AT(lb_prepare_vtable, load, 72);

LAYOUT_SIZE(lb_loss_vtable, 72);
LAYOUT_AT(lb_loss_vtable, struct_size, 0);
LAYOUT_AT(lb_loss_vtable, needs, 8);
LAYOUT_AT(lb_loss_vtable, reads, 24);
LAYOUT_AT(lb_loss_vtable, create, 32);
LAYOUT_AT(lb_loss_vtable, destroy, 40);
LAYOUT_AT(lb_loss_vtable, loss, 48);
LAYOUT_AT(lb_loss_vtable, save, 56);
LAYOUT_AT(lb_loss_vtable, load, 64);

LAYOUT_SIZE(lb_event, 88);
LAYOUT_AT(lb_event, struct_size, 0);
LAYOUT_AT(lb_event, kind, 4);
LAYOUT_AT(lb_event, step, 8);
LAYOUT_AT(lb_event, max_steps, 16);
LAYOUT_AT(lb_event, ctx, 24);
LAYOUT_AT(lb_event, models, 32);
LAYOUT_AT(lb_event, data, 40);
LAYOUT_AT(lb_event, facts, 48);
LAYOUT_AT(lb_event, values, 56);
LAYOUT_AT(lb_event, metrics, 64);
LAYOUT_AT(lb_event, text, 72);
LAYOUT_AT(lb_event, request, 80);

LAYOUT_SIZE(lb_callback_vtable, 80);
LAYOUT_AT(lb_callback_vtable, struct_size, 0);
LAYOUT_AT(lb_callback_vtable, needs, 8);
LAYOUT_AT(lb_callback_vtable, events, 24);
LAYOUT_AT(lb_callback_vtable, create, 32);
LAYOUT_AT(lb_callback_vtable, destroy, 40);
LAYOUT_AT(lb_callback_vtable, event, 48);
LAYOUT_AT(lb_callback_vtable, save, 56);
LAYOUT_AT(lb_callback_vtable, load, 64);
LAYOUT_AT(lb_callback_vtable, reads, 72);

LAYOUT_SIZE(lb_field, 32);
LAYOUT_AT(lb_field, name, 0);
LAYOUT_AT(lb_field, sizes, 8);
LAYOUT_AT(lb_field, dtype, 16);
LAYOUT_AT(lb_field, ndim, 20);
LAYOUT_AT(lb_field, flags, 24);
LAYOUT_AT(lb_field, reserved, 28);

LAYOUT_SIZE(lb_fields, 16);
LAYOUT_AT(lb_fields, stride, 0);
LAYOUT_AT(lb_fields, count, 4);
LAYOUT_AT(lb_fields, items, 8);

LAYOUT_SIZE(lb_source, 40);
LAYOUT_AT(lb_source, struct_size, 0);
LAYOUT_AT(lb_source, worker, 4);
LAYOUT_AT(lb_source, workers, 8);
LAYOUT_AT(lb_source, rank, 12);
LAYOUT_AT(lb_source, world, 16);
LAYOUT_AT(lb_source, flags, 20);
LAYOUT_AT(lb_source, seed, 24);
LAYOUT_AT(lb_source, wanted, 32);

LAYOUT_SIZE(lb_mix_source, 24);
LAYOUT_AT(lb_mix_source, name, 0);
LAYOUT_AT(lb_mix_source, end, 8);
LAYOUT_AT(lb_mix_source, weight, 16);

LAYOUT_SIZE(lb_mix, 16);
LAYOUT_AT(lb_mix, stride, 0);
LAYOUT_AT(lb_mix, count, 4);
LAYOUT_AT(lb_mix, items, 8);

LAYOUT_SIZE(lb_dataset_vtable, 112);
LAYOUT_AT(lb_dataset_vtable, struct_size, 0);
LAYOUT_AT(lb_dataset_vtable, open, 8);
LAYOUT_AT(lb_dataset_vtable, close, 16);
LAYOUT_AT(lb_dataset_vtable, length, 24);
LAYOUT_AT(lb_dataset_vtable, fields, 32);
LAYOUT_AT(lb_dataset_vtable, read, 40);
LAYOUT_AT(lb_dataset_vtable, runs, 48);
LAYOUT_AT(lb_dataset_vtable, read_many, 56);
LAYOUT_AT(lb_dataset_vtable, save, 64);
LAYOUT_AT(lb_dataset_vtable, load, 72);
LAYOUT_AT(lb_dataset_vtable, kept_runs, 80);
LAYOUT_AT(lb_dataset_vtable, mix, 88);
LAYOUT_AT(lb_dataset_vtable, fingerprint, 96);
LAYOUT_AT(lb_dataset_vtable, describe, 104);

LAYOUT_SIZE(lb_tracked_run, 48);
LAYOUT_AT(lb_tracked_run, struct_size, 0);
LAYOUT_AT(lb_tracked_run, id, 8);
LAYOUT_AT(lb_tracked_run, name, 16);
LAYOUT_AT(lb_tracked_run, directory, 24);
LAYOUT_AT(lb_tracked_run, manifest, 32);
LAYOUT_AT(lb_tracked_run, first_step, 40);

LAYOUT_SIZE(lb_tracker_vtable, 40);
LAYOUT_AT(lb_tracker_vtable, struct_size, 0);
LAYOUT_AT(lb_tracker_vtable, open, 8);
LAYOUT_AT(lb_tracker_vtable, scalars, 16);
LAYOUT_AT(lb_tracker_vtable, file, 24);
LAYOUT_AT(lb_tracker_vtable, close, 32);

LAYOUT_SIZE(lb_key, 32);
LAYOUT_AT(lb_key, struct_size, 0);
LAYOUT_AT(lb_key, stream, 4);
LAYOUT_AT(lb_key, purpose, 8);
LAYOUT_AT(lb_key, step, 16);
LAYOUT_AT(lb_key, micro, 24);
LAYOUT_AT(lb_key, index, 28);

LAYOUT_SIZE(lb_random_api, 48);
LAYOUT_AT(lb_random_api, struct_size, 0);
LAYOUT_AT(lb_random_api, seed, 8);
LAYOUT_AT(lb_random_api, normal, 16);
LAYOUT_AT(lb_random_api, uniform, 24);
LAYOUT_AT(lb_random_api, integers, 32);
LAYOUT_AT(lb_random_api, permutation, 40);

LAYOUT_SIZE(lb_group_api, 56);
LAYOUT_AT(lb_group_api, struct_size, 0);
LAYOUT_AT(lb_group_api, rank, 8);
LAYOUT_AT(lb_group_api, size, 16);
LAYOUT_AT(lb_group_api, all_gather, 24);
LAYOUT_AT(lb_group_api, all_reduce, 32);
LAYOUT_AT(lb_group_api, broadcast, 40);
LAYOUT_AT(lb_group_api, barrier, 48);

LAYOUT_SIZE(lb_writer, 56);
LAYOUT_AT(lb_writer, struct_size, 0);
LAYOUT_AT(lb_writer, ctx, 8);
LAYOUT_AT(lb_writer, tensor, 16);
LAYOUT_AT(lb_writer, integer, 24);
LAYOUT_AT(lb_writer, number, 32);
LAYOUT_AT(lb_writer, bytes, 40);
LAYOUT_AT(lb_writer, batch, 48);

LAYOUT_SIZE(lb_reader, 56);
LAYOUT_AT(lb_reader, struct_size, 0);
LAYOUT_AT(lb_reader, state_version, 4);
LAYOUT_AT(lb_reader, ctx, 8);
LAYOUT_AT(lb_reader, tensor, 16);
LAYOUT_AT(lb_reader, integer, 24);
LAYOUT_AT(lb_reader, number, 32);
LAYOUT_AT(lb_reader, bytes, 40);
LAYOUT_AT(lb_reader, batch, 48);
