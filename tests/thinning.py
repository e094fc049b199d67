"""Which of many similar cases a quick run takes."""

import collections

import pytest
from _pytest.mark.structures import MarkDecorator

NUMBER_OF_VARIANTS = {
    "conversion/test_computed_arguments.py": {
        "test_bounds_of_a_slice_are_computed": 2,
    },
    "conversion/test_contradictions.py": {
        "test_a_contradiction_that_becomes_known_is_refused": 3,
    },
    "conversion/test_conversion.py": {
        "test_a_backend_case_is_right_or_refused": 8,
        "test_each_line_of_the_version_ladder_is_right": 30,
    },
    "conversion/test_nearest_pixels.py": {
        "test_the_same_pixels_are_taken_after_conversion": 1,
    },
    "conversion/test_old_versions.py": {
        "test_an_old_version_means_at_other_opsets_what_it_means_at_its_own": 20,
    },
    "conversion/test_real_graphs.py": {
        "test_an_exported_model_agrees_at_other_opsets": 2,
    },
    "exporter/capture/caffe2/test_networks.py": {
        "test_agrees_with_pytorch": 2,
    },
    "exporter/capture/caffe2/test_operators.py": {
        "test_unknown_ranks": 60,
        "test_unknown_sizes": 90,
    },
    "exporter/capture/direct/loops/test_loops.py": {
        "test_every_size_agrees": 13,
        "test_other_loops_are_refused": 10,
    },
    "exporter/capture/direct/loops/test_public_loops.py": {
        "test_other_loops_are_refused_with_their_line": 4,
        "test_three_lengths_agree_with_eager": 8,
    },
    "exporter/capture/direct/test_dynamic_arguments.py": {
        "test_numbers_of_sizes_are_computed": 9,
    },
    "exporter/capture/direct/test_function_gradients.py": {
        "test_agrees_for_every_batch": 3,
    },
    "exporter/capture/direct/test_gradients.py": {
        "test_gradients_are_part_of_the_program": 5,
        "test_gradients_of_dynamic_sizes": 2,
    },
    "exporter/capture/direct/test_row_branches.py": {
        "test_both_sides_are_exported": 9,
        "test_sides_that_agree_are_one": 8,
    },
    "exporter/capture/direct/test_sizes_against_torch.py": {
        "test_results_and_allowed_sizes_are_those_of_torch": 14,
    },
    "exporter/capture/sizes/test_branches.py": {
        "test_a_branch_on_another_branch_is_refused_or_right": 12,
    },
    "exporter/capture/sizes/test_promised_ranges.py": {
        "test_a_narrowed_dimension_is_an_error_or_allowed": 2,
    },
    "exporter/capture/sizes/test_search.py": {
        "test_restrictions": 20,
    },
    "exporter/capture/sizes/test_size_regions.py": {
        "test_both_sides_of_a_branch_on_sizes_are_exported": 11,
    },
    "exporter/capture/sizes/test_windows.py": {
        "test_any_height_and_width": 2,
    },
    "exporter/capture/tensorflow/test_models.py": {
        "test_loops_and_branches_agree_with_tensorflow": 35,
    },
    "exporter/capture/tensorflow/test_recurrent.py": {
        "test_cells_that_differ_in_one_operator_agree": 3,
        "test_layers_agree_with_tensorflow": 30,
    },
    "exporter/capture/test_code_without_file.py": {
        "test_a_model_is_exported_as_from_a_file": 2,
        "test_code_of_exec_is_exported_or_refused_as_from_a_file": 1,
    },
    "exporter/capture/test_direct_capture.py": {
        "test_architectures_are_captured_alike": 1,
        "test_higher_order_operators_are_captured_alike": 2,
        "test_models_are_captured_alike": 10,
        "test_records_are_captured_alike": 26,
    },
    "exporter/capture/test_keyword_members.py": {
        "test_members_are_inputs_by_their_names": 14,
    },
    "exporter/capture/test_own_faults.py": {
        "test_wrong_calls_in_a_model_are_not_faults_of_opsetta": 13,
    },
    "exporter/capture/test_shared_memory.py": {
        "test_the_program_agrees_on_what_shares_memory": 16,
    },
    "exporter/capture/test_sizes_that_torch_fixes.py": {
        "test_every_size_agrees": 8,
    },
    "exporter/capture/torchscript/test_forms.py": {
        "test_every_form_agrees_for_other_sizes_and_paths": 8,
    },
    "exporter/capture/torchscript/test_scalar_operators.py": {
        "test_an_operator_of_computed_numbers": 20,
        "test_an_operator_of_constants": 24,
    },
    "exporter/capture/torchscript/test_sizes.py": {
        "test_a_claimed_size_holds_for_every_size": 20,
        "test_a_size_claimed_of_a_computed_cut_holds_for_every_number": 6,
    },
    "exporter/captured_graph/test_size_checks.py": {
        "test_a_check_has_the_value_of_its_condition": 10,
    },
    "exporter/devices/test_c_runtime.py": {
        "test_the_program_agrees_with_onnxruntime": 14,
    },
    "exporter/devices/test_plan_order.py": {
        "test_large_graphs_get_a_valid_order_that_is_better": 1,
    },
    "exporter/devices/test_plan_parts.py": {
        "test_operators_compute_parts": 1,
    },
    "exporter/devices/test_plans_of_models.py": {
        "test_a_plan_of_a_real_model": 1,
    },
    "exporter/editing/test_editing.py": {
        "test_raw_boxes_become_detections": 1,
    },
    "exporter/files/test_publishing.py": {
        "test_a_full_disk_leaves_the_old_model": 2,
    },
    "exporter/files/test_whole_models.py": {
        "test_a_killed_save_leaves_the_old_model_or_the_new_one": 1,
        "test_a_reader_gets_one_whole_model_while_two_processes_save": 1,
    },
    "exporter/huggingface/test_quantized_checkpoints.py": {
        "test_weights_stay_integers": 1,
    },
    "exporter/huggingface/test_speech.py": {
        "test_sounds_of_another_length": 1,
    },
    "exporter/huggingface/test_tasks.py": {
        "test_each_task_agrees_at_other_sizes": 8,
    },
    "exporter/huggingface/test_text_generator.py": {
        "test_rules_are_read_where_transformers_reads_them": 3,
    },
    "exporter/huggingface/test_token_search.py": {
        "test_beams_are_those_of_transformers": 1,
    },
    "exporter/lowering/test_default_attributes.py": {
        "test_a_file_that_spells_its_defaults_out_is_converted_like_one_that_does_not": 12,
    },
    "exporter/sweeps/test_ray_cluster.py": {
        "test_an_address_without_a_cluster_is_refused": 1,
    },
    "exporter/torch_boundary/test_submodules.py": {
        "test_a_model_is_the_same_after_an_export": 14,
    },
    "exporter/torch_boundary/test_transformer_modules.py": {
        "test_encoder": 3,
    },
    "exporter/training/test_models.py": {
        "test_ten_steps_follow_torch": 2,
    },
    "exporter/training/test_operators.py": {
        "test_gradients_agree_with_autograd": 3,
    },
    "exporter/training/test_optimizers.py": {
        "test_20_steps_follow_torch": 5,
    },
    "exporter/training/test_recurrent.py": {
        "test_20_steps_follow_torch": 1,
        "test_gradients_follow_torch_at_other_lengths": 1,
    },
    "fuzz/test_caffe2_nets.py": {
        "test_mutated_nets_end_in_a_graph_or_a_refusal": 1,
    },
    "fuzz/test_programs.py": {
        "test_programs_give_what_eager_gives": 2,
    },
    "fuzz/test_reading.py": {
        "test_mutated_files_end_in_a_model_or_a_refusal": 2,
    },
    "fuzz/test_tensorflow_files.py": {
        "test_mutated_files_end_in_a_graph_or_a_refusal": 1,
    },
    "fuzz/test_tensorflow_graphs.py": {
        "test_changed_graphs_are_captured_or_refused": 2,
    },
    "models/test_architectures.py": {
        "test_architecture_agrees_with_eager": 6,
        "test_generation_step_with_cache_agrees_with_eager": 2,
    },
    "models/test_pt2e.py": {
        "test_model_agrees_with_eager": 12,
    },
    "models/test_quantized_models.py": {
        "test_quantized_model_agrees_with_eager": 4,
    },
    "models/test_scripted_programs.py": {
        "test_a_scripted_program_agrees_on_every_path": 14,
    },
    "models/test_torchao.py": {
        "test_half_precision_agrees_with_eager": 4,
        "test_model_agrees_with_eager": 20,
    },
    "models/test_torchscript_models.py": {
        "test_scriptable_model_agrees": 5,
        "test_traced_architecture_agrees": 1,
    },
    "models/test_value_dependent_models.py": {
        "test_the_export_agrees_with_eager": 14,
    },
    "parity/test_computed_groups.py": {
        "test_a_kernel_for_each_sample_agrees": 12,
    },
    "parity/test_factorization.py": {
        "test_factorization": 18,
    },
    "parity/test_higher_order.py": {
        "test_models_agree_on_every_path": 4,
        "test_the_operators_of_torchs_own_database_agree": 8,
    },
    "parity/test_interpolation.py": {
        "test_computed_sizes_agree_with_eager": 5,
    },
    "parity/test_lists.py": {
        "test_program_agrees_with_eager": 40,
    },
    "parity/test_packed_sequences.py": {
        "test_layers_agree_with_eager": 7,
        "test_layers_of_other_element_types_agree_with_eager": 4,
        "test_models_agree_with_eager": 12,
    },
    "parity/test_recurrent.py": {
        "test_any_length_in_other_element_types": 12,
        "test_recurrent_layers_agree_with_eager": 14,
    },
    "parity/test_sequence_losses.py": {
        "test_agrees_with_eager": 12,
    },
    "parity/test_torchscript_operators.py": {
        "test_fused_transformer_kernels": 4,
    },
    "parity/test_torchvision.py": {
        "test_agrees_with_the_kernel": 7,
    },
    "passes/planning/test_offsets.py": {
        "test_published_instances_are_placed_within_a_quarter": 1,
    },
    "symbolics/test_lists.py": {
        "test_list_agrees_with_numpy": 234,
    },
    "tensorflow/test_operators.py": {
        "test_agrees_with_tensorflow": 620,
        "test_agrees_without_ranks": 400,
    },
    "torch_onnx/exporting/test_fixed_paths.py": {
        "test_a_path_without_inputs_is_refused_and_writes_nothing": 3,
    },
}
"""How many variants of a test quick runs take, by file; full runs take all. They are costly, or hundreds."""


def spread(count: int, number: int) -> set[int]:
    """That many of the numbers below a count, the first and the last among them, at equal distances."""
    if number >= count:
        return set(range(count))
    return {index * (count - 1) // max(1, number - 1) for index in range(number)}


class Variants:
    """Marks the variants of a subject that are left to full runs.

    Args:
        first: how many variants of each subject quick runs take.
        step: of the further ones, quick runs take every `step`-th.
    """

    def __init__(self, first: int, step: int):
        self._first, self._step = first, step
        self._counts = collections.Counter[str]()

    def marks(self, subject: str = "") -> list[MarkDecorator]:
        """The marks of the next variant of a subject."""
        self._counts[subject] += 1
        further = self._counts[subject] - self._first
        return [] if further <= 0 or further % self._step == 0 else [pytest.mark.sweep]
