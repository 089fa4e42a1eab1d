"""Canonical readings: the traps of real configs, each with what the tool's own code makes of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError, NotModelled
from finefit.formats.said import Entry, Said
from finefit.formats.tools import TOOLS
from finefit.resolve.any_config import resolve_any
from finefit.resolve.defaults import defaults
from finefit.resolve.gpus import on_gpus
from finefit.resolve.reading_recipe import refuse
from finefit.resolve.readings import CORE, FIELDS, read_config, reading_of
from finefit.workload.dtypes import DType
from finefit.workload.lengths import Lengths


def read(tmp_path, name, text, **more):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return read_config(path, **more)


def plan(tmp_path, name, text, **more):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return resolve_any(path, **more)


SWIFT = "swift sft --model Qwen/Qwen2.5-0.5B-Instruct --max_length 512 "
AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B-Instruct\nsequence_len: 512\n"
MEGATRON = "NPROC_PER_NODE=8 megatron sft --model a/b --global_batch_size 16 "
TRL = "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\nmax_length: 512\n"


def test_core_fields_are_the_fourteen():
    assert CORE == (
        "model", "task", "method", "rank", "quant_bits", "micro_batch", "grad_accum", "seq_len", "packing",
        "optimizer", "checkpointing", "strategy", "offload", "gpus",
    )  # fmt: skip
    assert set(CORE) < set(FIELDS)


def test_every_value_says_where_it_comes_from(tmp_path):
    found = read(tmp_path, "a.yaml", AXOLOTL + "adapter: lora\n\nlora_r: 16\n")
    assert str(found.values["rank"].source) == "stated (a.yaml:5)"
    assert found.values["rank"].place == f"{tmp_path}/a.yaml:5: lora_r"
    assert str(found.values["micro_batch"].source) == "default (axolotl@0.19.0)" and found.get("micro_batch") == 1


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("adapter: qlora\nload_in_4bit: true\n", "quant_bits", 4),
        ("adapter: lora\nload_in_4bit: true\n", "quant_bits", None),  # applied with adapter: qlora alone
        ("adapter: lora\nload_in_8bit: true\n", "method", "lora"),
        ("gradient_checkpointing: unsloth\n", "checkpointing", "full"),
        ("gradient_checkpointing: off\n", "checkpointing", "none"),
        ("sequence_len: 500_000\n", "seq_len", 500_000),
        ("micro_batch_size: 2\nbatch_size: 8\n", "grad_accum", 4),
        ("rl: dpo\n", "task", "dpo"),
        ("fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: true\n", "strategy", "fsdp1"),
        ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "strategy", "fsdp2"),
        ("deepspeed: deepspeed_configs/zero2.json\n", "strategy", "zero2"),
        ("dp_shard_size: 2\ntensor_parallel_size: 2\n", "gpus", 4),
        ("activation_offloading: legacy\n", "offload", ("activations",)),
    ],
)
def test_axolotl(tmp_path, text, field, value):
    assert read(tmp_path, "a.yaml", AXOLOTL + text).get(field) == value


def test_unused_axolotl_quantisation_is_said(tmp_path):
    found = read(tmp_path, "a.yaml", AXOLOTL + "adapter: lora\nload_in_4bit: true\n")
    assert any("load_in_4bit is applied only with adapter: qlora" in sentence for sentence in found.warnings)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "method", "full"),
        ("lora_r: 8\n", "method", "full"),  # without use_peft
        ("use_peft: true\nload_in_4bit: true\n", "method", "qlora"),
        ("num_generations: 8\nmax_prompt_length: 512\nmax_completion_length: 1024\n", "seq_len", 1536),
        ("num_generations: 8\n", "seq_len", None),  # prompts are not cut
        ("beta: 0.1\n", "task", "dpo"),
        ("gradient_checkpointing: false\n", "checkpointing", "none"),
        ("", "checkpointing", "full"),
        ("accelerate_config: zero3\nnum_processes: 8\n", "strategy", "zero3"),
    ],
)
def test_trl(tmp_path, text, field, value):
    assert read(tmp_path, "a.yaml", TRL + text).get(field) == value


@pytest.mark.parametrize(
    ("key", "says"),
    [("max_seq_length: 4096", "the run will use max_length, 1024"), ("torch_dtype: bfloat16", "float32")],
)
def test_keys_that_trl_ignores_are_reported(tmp_path, key, says):
    found = read(tmp_path, "a.yaml", f"model_name_or_path: a/b\n{key}\n")
    assert any(says in sentence and "a.yaml:2" in sentence for sentence in found.warnings)
    assert (found.get("seq_len"), found.get("load_dtype")) == (1024, "fp32")


def test_trl_length_null_is_unknown_and_not_1024(tmp_path):
    found = read(tmp_path, "a.yaml", "model_name_or_path: a/b\nuse_peft: true\nmax_length: null\n")
    assert found.get("seq_len") is None and any("cuts nothing" in sentence for sentence in found.warnings)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        (SWIFT + "--quant_bits 4", "quant_bits", None),  # without quant_method the model is loaded unquantised
        (SWIFT + "--quant_bits 4 --quant_method bnb", "method", "qlora"),
        ("swift sft --model a/b", "seq_len", "model maximum"),
        ("NPROC_PER_NODE=4 " + SWIFT, "grad_accum", 4),  # ceil(16 / (1 x 4))
        ("CUDA_VISIBLE_DEVICES=0,1 " + SWIFT, "strategy", "device_map"),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 " + SWIFT, "strategy", "none"),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 NNODES=2 " + SWIFT, "gpus", 4),
        ("NNODES=$WORLD NPROC_PER_NODE=8 " + SWIFT, "gpus", None),
        (SWIFT + "--deepspeed zero3_offload", "offload", ("optimizer", "params")),
        ("swift rlhf --model a/b", "task", "dpo"),
        ("n=2\n" + SWIFT + "--gradient_accumulation_steps $(expr 16 / $n)", "grad_accum", 8),
        ("# 2 * 76GiB\n" + SWIFT, "gpus", 2),
        (SWIFT + "--dataset a/b#500", "model", "Qwen/Qwen2.5-0.5B-Instruct"),
        (MEGATRON + "--tensor_model_parallel_size 4", "grad_accum", 8),  # 16 / (1 x 8 / 4)
    ],
)  # fmt: skip
def test_swift(tmp_path, text, field, value):
    assert read(tmp_path, "a.sh", text + "\n").get(field) == value


def test_swift_quantisation_that_does_not_happen_is_said(tmp_path):
    found = read(tmp_path, "a.sh", SWIFT + "--quant_bits 4\n")
    assert any("loads the model unquantised" in sentence for sentence in found.warnings)


def test_torchtune_recipe_and_gpus_stand_in_the_header(tmp_path):
    text = (
        "# tune run --nproc_per_node 8 full_finetune_distributed --config other\n"
        "# To launch on 2 devices:\n#   tune run --nproc_per_node 2 lora_finetune_distributed --config x/8B_lora\n"
        "out: /tmp/x\nmodel:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: 4\n"
        "base: /tmp/Meta-Llama-3.1-8B-Instruct\ncheckpointer:\n  checkpoint_dir: ${base}/\nbatch_size: 2\n"
        "tokenizer:\n  max_seq_len: null\n"
    )
    found = read(tmp_path, "8B_lora.yaml", text)
    read_values = [found.get(name) for name in ("model", "method", "rank", "gpus", "strategy", "seq_len")]
    assert read_values == ["Meta-Llama-3.1-8B-Instruct", "lora", 4, 2, "fsdp2", None]


def test_torchtune_without_a_batch_is_no_training(tmp_path):
    text = "model:\n  _component_: torchtune.models.llama2.llama2_7b\nprompt: hi\n"
    with pytest.raises(NotModelled, match="without batch_size"):
        plan(tmp_path, "a.yaml", text)


def test_unsloth_from_the_syntax_tree(tmp_path):
    """Defaults of Unsloth's own patched trainer config: 4 rows, 2 accumulation steps, adamw_8bit."""
    text = (
        "from unsloth import FastLanguageModel\nsize = 4096\nraise SystemExit\n"
        "m, t = FastLanguageModel.from_pretrained(model_name='a/b', max_seq_length=size)\n"
        "m: object = FastLanguageModel.get_peft_model(m, r=32)\n"
        "SFTTrainer(model=m, packing=True, args=SFTConfig(per_device_train_batch_size=1)).train()\n"
    )
    found = read(tmp_path, "a.py", text)
    names = ("method", "rank", "quant_bits", "seq_len", "micro_batch", "grad_accum", "optimizer", "packing", "offload")
    expected = ["qlora", 32, 4, 4096, 1, 2, "adamw_8bit", "yes", ("activations",)]
    assert [found.get(name) for name in names] == expected
    with pytest.raises(NotModelled, match="Unsloth") as caught:
        refuse(found)
    assert "finefit plan a/b --method qlora --rank 32 --batch 1 --accum 2 --seq 4096" in caught.value.fix


def test_xtuner_assignments(tmp_path):
    text = (
        "pretrained_model_name_or_path = 'a/b'\nbatch_size = 2\naccumulative_counts = 8\npack_to_max_length = True\n"
        "model = dict(type=Fine, llm=dict(quantization_config=dict(load_in_4bit=True)), lora=dict(r=64))\n"
    )
    found = read(tmp_path, "a.py", text)
    names = ("tool", "version")
    assert [getattr(found, name) for name in names] == ["xtuner", "0.2.0"]
    fields = ("method", "rank", "quant_bits", "micro_batch", "grad_accum", "seq_len", "packing")
    assert [found.get(name) for name in fields] == ["qlora", 64, 4, 2, 8, 2048, "yes"]


def test_litgpt_derives_its_accumulation(tmp_path):
    text = "checkpoint_dir: checkpoints/a/b\ndevices: 4\nquantize: bnb.nf4\nlora_r: 8\ntrain:\n"
    found = read(tmp_path, "a.yaml", text + "  global_batch_size: 64\n  micro_batch_size: 4\n")
    values = [found.get(name) for name in ("model", "method", "grad_accum", "gpus", "checkpointing")]
    assert values == ["a/b", "qlora", 4, 4, "full"]


def test_a_cloud_task_counts_gpus_and_reads_the_command_inside(tmp_path):
    text = (
        "resources:\n  accelerators: H100:8\nnum_nodes: 2\nrun: |\n"
        "  if [ $SKYPILOT_NODE_RANK == 0 ]; then\n    swift sft --model a/b --max_length 7\n  fi\n"
    )
    found = read(tmp_path, "a.yaml", text)
    assert (found.kind, found.get("gpus"), found.get("model"), found.get("seq_len")) == ("task", 16, "a/b", 7)


def test_a_cloud_task_is_planned_by_its_command(tmp_path):
    text = f"resources:\n  accelerators: A100:2\nrun: |\n  pip install x\n  NPROC_PER_NODE=2 {SWIFT}\n"
    found = plan(tmp_path, "a.yaml", text)
    assert (found.recipe.seq_len, found.recipe.method_label) == (512, "LoRA")
    assert any('state them: --gpu "2x CARD"' in sentence for sentence in found.assumptions)


def test_a_launcher_file_names_no_model(tmp_path):
    found = read(tmp_path, "a.yaml", "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n")
    assert (found.kind, found.get("strategy"), found.get("gpus")) == ("launcher", "fsdp2", 8)
    assert any("fsdp_auto_wrap_policy" in refusal.what for refusal in found.refusals)
    with pytest.raises(InputError, match="names no model"):
        refuse(found)


def test_an_accelerate_file_is_followed(tmp_path):
    (tmp_path / "f.yaml").write_text(
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_activation_checkpointing: true\n",
        "utf-8",
    )
    text = "accelerate launch --config_file f.yaml swift/cli/sft.py --model a/b --gradient_checkpointing false\n"
    found = read(tmp_path, "a.sh", text)
    assert (found.get("strategy"), found.get("gpus"), found.get("checkpointing")) == ("fsdp2", 2, "full")
    assert found.values["checkpointing"].place.startswith(f"{tmp_path}/f.yaml:6")


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.yaml", AXOLOTL + "micro_batch_size: many\n", "a.yaml:3: micro_batch_size"),
        ("a.yaml", AXOLOTL + "adapter: lora\nlora_r: 1.5\n", "a.yaml:4: lora_r"),
        ("a.sh", SWIFT + "--max_length -1\n", "a.sh:1: max_length"),
        ("a.json", '{"zero_optimization": {"stage": 7}}', "a.json"),
    ],
)
def test_wrong_values_are_named_with_their_line(tmp_path, name, text, where):
    with pytest.raises(InputError) as caught:
        read(tmp_path, name, text)
    assert (caught.value.where or "").endswith(where) and caught.value.fix


# From the reading to what lies on the GPU: bytes a parameter of a full fine-tune, by the tools' own sources


@pytest.mark.parametrize(
    ("name", "text", "bytes_each"),
    [
        ("a.yaml", AXOLOTL + "attn_implementation: flash_attention_2\n", 8),  # bf16 weights, gradients and states
        ("a.yaml", TRL + "attn_implementation: sdpa\n", 16),  # loaded in float32 unless dtype says otherwise
        ("a.yaml", TRL + "dtype: bfloat16\n", 8),
        ("a.sh", SWIFT + "--tuner_type full --torch_dtype bfloat16\n", 8),
    ],
)
def test_bytes_a_parameter(tmp_path, name, text, bytes_each):
    found = plan(tmp_path, name, text)
    recipe = found.recipe
    width = recipe.weight_dtype.bytes
    assert width * 4 == bytes_each and recipe.optimizer.name == "adamw" and recipe.optimizer.state_dtype is None
    assert not recipe.master_weights and recipe.sources["weight_dtype"].detail


@pytest.mark.parametrize(
    ("name", "text", "weights", "master"),
    [
        ("a.yaml", AXOLOTL + "deepspeed: zero3.json\n", DType.BF16, True),
        ("a.yaml", AXOLOTL + "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", DType.FP32, False),
        ("a.sh", SWIFT + "--tuner_type full --torch_dtype bfloat16 --deepspeed zero2\n", DType.BF16, True),
        ("a.yaml", TRL + "accelerate_config: zero3\n", DType.BF16, True),
    ],
)
def test_sharded_runs(tmp_path, name, text, weights, master):
    recipe = plan(tmp_path, name, text).recipe
    assert (recipe.weight_dtype, recipe.master_weights) == (weights, master)
    assert recipe.autocast is (None if master else DType.BF16)


def test_adapters(tmp_path):
    """PEFT keeps them in fp32; TRL casts those of a quantised base to bf16; DeepSpeed casts everything."""
    lora = "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    assert plan(tmp_path, "a.yaml", AXOLOTL + lora).recipe.lora.dtype is DType.FP32
    assert plan(tmp_path, "a.yaml", AXOLOTL + lora + "deepspeed: zero2.json\n").recipe.lora.dtype is DType.BF16
    quantised = plan(tmp_path, "a.yaml", TRL + "use_peft: true\nload_in_4bit: true\ndtype: bfloat16\n").recipe
    assert quantised.lora.dtype is DType.BF16 and quantised.quant.kind == "nf4" and not quantised.quant.double
    assert set(quantised.lora.targets) == {"q_proj", "v_proj"}  # PEFT's table for Qwen 2


def test_every_linear_module_and_more(tmp_path):
    """ms-swift takes "all-linear" beside other names; PEFT alone would look for a module called so."""
    text = SWIFT + "--target_modules all-linear lm_head\n"
    assert set(plan(tmp_path, "a.sh", text).recipe.lora.targets) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head",
    }  # fmt: skip


def test_packed_rows_are_joined(tmp_path):
    """Axolotl concatenates the rows of a packed micro-batch: one row of micro x length tokens."""
    recipe = plan(tmp_path, "a.yaml", AXOLOTL + "sample_packing: true\nmicro_batch_size: 4\n").recipe
    assert (recipe.seq_len, recipe.micro_batch, recipe.padded, recipe.packing) == (2048, 1, False, True)


def test_a_length_that_nothing_bounds(tmp_path):
    text = "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\nuse_peft: true\nmax_length: null\n"
    found = plan(tmp_path, "a.yaml", text)
    assert found.recipe.seq_len == 32768 and any("--longest" in sentence for sentence in found.assumptions)
    assert plan(tmp_path, "a.yaml", text, lengths=Lengths(longest=777, source="--longest")).recipe.seq_len == 777
    swift = plan(tmp_path, "a.sh", "swift sft --model Qwen/Qwen2.5-0.5B-Instruct\n")
    assert swift.recipe.seq_len == 32768 and any("own limit of 32768" in sentence for sentence in swift.assumptions)


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
data_parallel_replicate_degree = 2
[activation_checkpoint]
mode = "full"
"""


def test_degrees_become_a_cut_and_are_said(tmp_path):
    """torchtitan 0.2.2: fp32 shards computed in bf16; 16 GPUs are 2 replicas of 2 shards of a copy over 4."""
    found = plan(tmp_path, "a.toml", TITAN)
    recipe = found.recipe
    assert (recipe.parallel.tensor, recipe.parallel.pipeline, recipe.parallel.gpus) == (2, 2, 4)
    assert (recipe.weight_dtype.value, recipe.autocast.value, recipe.sharding.kind) == ("fp32", "bf16", "fsdp")
    assert on_gpus(recipe, 16).sharding.ranks == 2
    assert sum("upper bound" in sentence for sentence in found.assumptions) == 2


@pytest.mark.parametrize(
    ("method", "task", "text", "expected"),
    [
        ("full", "dpo", "beta: 0.1\n", ("copy", 0.0, 0)),
        ("full", "dpo", "beta: 0.1\nprecompute_ref_log_probs: true\n", ("none", 0.0, 0)),
        ("full", "grpo", "num_generations: 8\nuse_vllm: true\n", ("none", 0.3, 0)),
        ("full", "grpo", "num_generations: 8\nbeta: 0.04\ngradient_accumulation_steps: 4\n", ("copy", 0.0, 4)),
        ("lora", "dpo", "beta: 0.1\nuse_peft: true\n", ("self", 0.0, 0)),
    ],
)
def test_what_lies_beside_the_policy_in_trl(tmp_path, method, task, text, expected):
    """trl 1.16.0: beta is 0.0 in GRPOConfig, vllm_gpu_memory_utilization 0.3, generation by accumulation steps."""
    recipe = plan(tmp_path, "a.yaml", TRL + text).recipe
    beside = recipe.beside
    assert (recipe.method, recipe.task) == (method, task)
    assert (beside.reference, beside.engine_share, beside.generated) == expected
    assert recipe.rows == recipe.micro_batch * (2 if task == "dpo" else 1)


VERL = """python3 -m verl.trainer.main_ppo \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \\
    algorithm.adv_estimator=grpo \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    data.max_prompt_length=512 data.max_response_length=1024
"""


def test_verl_keeps_fp32_shards_and_lets_the_engine_sleep(tmp_path):
    """verl 0.9.1: rollout.yaml gpu_memory_utilization 0.5, free_cache_engine True; the reference rests in host RAM."""
    recipe = plan(tmp_path, "a.sh", VERL).recipe
    assert (recipe.weight_dtype.value, recipe.autocast.value, recipe.sharding.kind) == ("fp32", "bf16", "fsdp")
    assert (recipe.seq_len, recipe.micro_batch, recipe.padded, recipe.loss) == (4 * 1536, 1, False, "inplace")
    beside = recipe.beside
    assert (beside.reference, beside.reference_offload, beside.critic) == ("copy", True, False)
    assert (beside.engine_share, beside.engine_sleeps) == (0.5, True)
    assert plan(tmp_path, "a.sh", VERL.replace("=grpo", "=gae")).recipe.beside.critic


def test_a_name_nobody_knows_is_planned_as_its_family(tmp_path):
    text = AXOLOTL.replace("Qwen/Qwen2.5-0.5B-Instruct", "me/qwen2.5-0.5b-my-own")
    found = plan(tmp_path, "a.yaml", text)
    assert found.model.hidden == 896 and any("my-own is not known by name" in said for said in found.assumptions)
    with pytest.raises(InputError):
        plan(tmp_path, "a.yaml", AXOLOTL.replace("Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b-my-own-gptq"))
    with pytest.raises(InputError):
        plan(tmp_path, "a.yaml", AXOLOTL.replace("Qwen/Qwen2.5-0.5B-Instruct", "me/nothing-7b"))


def test_overrides_are_the_tools_own_keys(tmp_path):
    assert plan(tmp_path, "a.yaml", AXOLOTL, overrides={"sequence_len": "1024"}).recipe.seq_len == 1024


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.yaml", AXOLOTL + "relora: true\n", "ReLoRA"),
        ("a.yaml", AXOLOTL + "optimizer: sinkgd\n", "sinkgd"),
    ],
)
def test_what_is_not_modelled_is_one_sentence(tmp_path, name, text, what):
    with pytest.raises(NotModelled, match=what) as caught:
        plan(tmp_path, name, text)
    sentence = str(caught.value)
    assert caught.value.fix and "\n" not in sentence and sentence.count("is not modelled yet") == 1


# Any values under the keys that readers look at: only our own errors

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**40), st.floats(), st.text(max_size=6),
    st.sampled_from(["auto", "2e-5", "lora", "qlora", "full", "bf16", "zero3", "fsdp2", "1e9", "no"]),
)  # fmt: skip
_VALUES = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=3), st.dictionaries(st.text(max_size=4), _SCALARS, max_size=2)
)
_MORE = {
    "axolotl": ["base_model", "adapter", "lora_r", "fsdp", "fsdp_config", "deepspeed", "rl", "plugins", "batch_size"],
    "trl": ["model_name_or_path", "beta", "deepspeed", "fsdp", "accelerate_config", "attn_implementation"],
    "ms-swift": ["model", "deepspeed", "quant_bits", "ENV", "device_groups.nproc_per_node", "torch_dtype", "fsdp"],
    "torchtune": ["model._component_", "checkpointer.checkpoint_dir", "batch_size", "optimizer._component_", "dtype"],
    "accelerate": ["distributed_type", "num_processes", "fsdp_config.fsdp_offload_params", "mixed_precision"],
    "skypilot": ["resources.accelerators", "run"],
    "dstack": ["resources.gpu", "nodes", "commands"],
    "deepspeed": ["zero_optimization", "train_batch_size", "optimizer.type"],
}


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_any_values_give_a_reading_or_one_of_our_errors(tool, data):
    keys = sorted({*(_MORE.get(tool, ())), *list(defaults(tool, TOOLS[tool].version))[:40]})
    drawn = data.draw(st.dictionaries(st.sampled_from(keys), _VALUES, max_size=12))
    program = data.draw(st.sampled_from(["", "swift rlhf", "megatron sft", "verl.trainer.main_ppo", "sft.py"]))
    entries = MappingProxyType({key: Entry(value, "f:1") for key, value in drawn.items()})
    facts = MappingProxyType({"NPROC_PER_NODE": Entry(data.draw(_SCALARS), "f:1")})
    if tool in ("skypilot", "dstack"):
        program = ""
    said = Said(tool, TOOLS[tool].version, Path("f"), entries, (), program, facts)
    with suppress(FinefitError):
        reading = reading_of(said)
        assert set(reading.values) <= set(FIELDS)
        refuse(reading)
