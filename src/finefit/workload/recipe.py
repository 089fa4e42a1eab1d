"""How a model is trained: everything that decides memory and time besides its architecture.

A recipe is always complete: ``resolve`` fills what the user left out and records the source of each
field in ``sources`` (key = dotted field name, "lora.rank").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from finefit.workload.dtypes import DType
from finefit.workload.optimizers import OPTIMIZERS, Kind
from finefit.workload.sourced import Source
from finefit.workload.tower import Images

_NO_SOURCES: Mapping[str, Source] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Lora:
    """Adapters beside frozen linear layers, in PEFT's terms.

    Attributes:
        kind: "lora" | "dora" | "lora_fa" (A frozen) | "adalora" | "vera" | "oft" | "ia3".
        targets: leaf module names ("q_proj"); resolved, never "all-linear".
        dtype: PEFT autocast_adapter_dtype=True casts adapters to fp32.
        modules_to_save: trained in full beside the adapters ("embed_tokens", "lm_head").
        saved_dtype: of those; None: that of the module they copy, as PEFT leaves it.
        block: OFT's block size.
        feedforward: targets whose input (IA)³ scales, not their output.
    """

    rank: int
    alpha: int
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    dtype: DType = DType.FP32
    modules_to_save: tuple[str, ...] = ()
    saved_dtype: DType | None = None
    kind: str = "lora"
    block: int = 0
    feedforward: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trained:
    """The parameters that are trained where that is a part of the model, without adapters.

    Attributes:
        layers: numbers of the decoder layers; None: all of them.
        modules: parts of a parameter's path inside a layer, one of which it has ("mlp", "norm"); () for any.
        outside: parts of the paths of what lies outside the layers ("embed_tokens", "lm_head", "norm").
        dtype: of the trained parameters; None: that of the others.
        selective: layers without trained parameters are not checkpointed, and the input of the others is made to
            need a gradient (llamafactory 0.9.5 checkpointing.py ``get_custom_gradient_checkpointing_func``).
    """

    layers: tuple[int, ...] | None = None
    modules: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    dtype: DType | None = None
    selective: bool = False

    def holds(self, name: str) -> bool:
        """Whether a parameter is trained, by its name: "layers.3.mlp.up_proj.weight", "embed_tokens.weight"."""
        if not name.startswith("layers."):
            return any(part in name for part in self.outside)
        _, index, path = name.split(".", 2)
        if self.layers is not None and int(index) not in self.layers:
            return False
        return not self.modules or any(part in path for part in self.modules)


@dataclass(frozen=True, slots=True)
class Quant:
    """Quantised storage of frozen linear weights."""

    kind: str  # "nf4" | "fp4" | "int8" (bitsandbytes), "gptq" | "awq" (stored so)
    double: bool = False  # quantise the quantisation constants too
    kbit_prepare: bool = False  # peft.prepare_model_for_kbit_training: other 16-bit parameters to fp32
    recast: bool = False  # then TRL's peft_module_casting_to_bf16: embeddings and head back to 16 bits
    compute_dtype: DType = DType.BF16
    bits: int = 0  # of a stored kind
    group: int = 0  # weights that share a scale and a zero point, of a stored kind

    @property
    def stored(self) -> bool:
        """The checkpoint itself is quantised."""
        return self.group > 0


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Optimizer by its mathematics, its implementation and its state dtype.

    Attributes:
        name: a key of ``workload.optimizers.OPTIMIZERS``.
        impl: "fused" | "foreach" (temporaries of all parameters at once) | "loop" (of one parameter at a time).
        state_dtype: None: that of the optimizer's own code, in general the parameter's.
        momentum: SGD only.
        paged: states of large tensors lie in managed memory, outside the allocator.
        rank, targets: of a low-rank projection of gradients, and the linear modules it is for.
        in_backward: each parameter is updated as soon as its gradient is there, which is then given back.
    """

    name: str
    impl: str = "fused"
    state_dtype: DType | None = None
    momentum: bool = False
    paged: bool = False
    rank: int = 0
    targets: tuple[str, ...] = ()
    in_backward: bool = False

    @property
    def kind(self) -> Kind:
        """What this optimizer keeps."""
        return OPTIMIZERS["sgd_momentum" if self.name == "sgd" and self.momentum else self.name]


@dataclass(frozen=True, slots=True)
class Sharding:
    """How states are spread over the data-parallel ranks."""

    kind: str = "none"  # "none" | "ddp" | "zero1" | "zero2" | "zero3" | "fsdp" | "megatron"
    ranks: int = 1
    offload_optimizer: bool = False
    offload_params: bool = False
    reduce_bucket: int = 500_000_000  # elements; DeepSpeed reduce_bucket_size
    gather_bucket: int = 500_000_000  # elements; DeepSpeed allgather_bucket_size
    overlap_comm: bool = False
    prefetch_bucket: int = 50_000_000  # elements; stage3_prefetch_bucket_size
    main_gradient: int = 4  # bytes of an element of Megatron's gradient buffer
    persistence_threshold: int = 100_000  # elements; stage3_param_persistence_threshold
    max_live: int = 1_000_000_000  # elements; stage3_max_live_parameters

    @property
    def divides_states(self) -> bool:
        """Whether the optimizer's states are divided over the ranks."""
        return self.kind in ("zero1", "zero2", "zero3", "fsdp", "megatron")


@dataclass(frozen=True, slots=True)
class Parallel:
    """How one copy of the model is cut over GPUs; the GPUs divided by all but ``expert`` are data-parallel.

    Attributes:
        tensor: ranks that share each matrix; pipeline: stages of layers; context: ranks that share the tokens of a
            row (context or Ulysses sequence parallelism); expert: ranks that share the experts, among the
            data-parallel ones.
        vocabulary: tensor ranks share embedding, head and logits too (Megatron, torchtitan); transformers' plans
            gather the logits.
        replicas: groups of GPUs that each hold all the shards (hybrid sharding).
        one_at_a_time: the stages work on one micro-batch one after the other (``device_map``), so none waits.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    vocabulary: bool = False
    replicas: int = 1
    one_at_a_time: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor * self.pipeline * self.context


@dataclass(frozen=True, slots=True)
class Beside:
    """What lies on a GPU beside the model that is trained.

    Attributes:
        reference: "none" | "copy" (a frozen second model) | "self" (the same model with its adapters off).
        reference_dtype: of the copy; None: that of the trained weights.
        reference_offload: the copy's weights rest in host memory.
        critic: a second trained model with one output (PPO's value model).
        reward: a frozen model of the same architecture with one output.
        engine_share: part of the card that an inference engine takes (vLLM, SGLang); 0: none on these GPUs.
        engine_sleeps: it gives that memory back while a step trains.
        states_leave: weights and optimizer states of the trained model move to host memory while it runs.
        generated: micro-batches whose rows ``generate`` of transformers makes at once, with one KV cache; 0: none.
    """

    reference: str = "none"
    reference_dtype: DType | None = None
    reference_offload: bool = False
    critic: bool = False
    reward: bool = False
    engine_share: float = 0.0
    engine_sleeps: bool = False
    states_leave: bool = False
    generated: int = 0


# Names of adapters as their papers write them
_ADAPTERS = {
    "lora": "LoRA",
    "dora": "DoRA",
    "lora_fa": "LoRA-FA",
    "adalora": "AdaLoRA",
    "vera": "VeRA",
    "oft": "OFT",
    "ia3": "IA3",
}

# Rows that one sample puts into a batch: chosen and rejected, concatenated (trl 1.16.0 dpo_trainer.py)
_PAIRS = frozenset({"dpo", "ipo", "orpo", "simpo", "cpo", "rm"})


@dataclass(frozen=True, slots=True)
class Recipe:
    """One training recipe on one stack.

    Attributes:
        weight_dtype: dtype of frozen and trained weights as they lie on the GPU (quantised ones apart).
        autocast: compute dtype under torch autocast, None for a pure run in ``weight_dtype``.
        master_weights: the stack keeps an extra fp32 copy of trained weights (DeepSpeed, Megatron).
        seq_len: tokens of the longest sample after truncation or packing; it sets the peak.
        padded: rows of a batch differ in length, so an attention mask is passed on.
        checkpointing: "none" | "full" (every decoder layer recomputed).
        reentrant: the checkpoint implementation; the reentrant one recomputes the whole layer.
        attention: "eager" | "sdpa" | "flash2".
        loss: "full" (logits in fp32) | "fused_linear" (Liger) | "chunked" (TRL tiles).
        keeps_outputs: the training loop holds the model's outputs through backward.
        returns_cache: the forward is asked for keys and values, as config.use_cache does unless a tool turns
            it off; transformers' Trainer turns it off from 5.0 on (``TrainingArguments.use_cache``).
        products: what the layers' matrix products are computed in: "16bit" | "fp8" | "mxfp8", from weights and
            activations that are kept in 16 or 32 bits.
        stack: library versions the step follows, {"transformers": "5.24.0"}.
    """

    method: str  # "full" | "lora" | "freeze"
    weight_dtype: DType
    optimizer: Optimizer
    seq_len: int
    micro_batch: int = 1
    grad_accum: int = 1
    task: str = "sft"  # "sft" | "pt" | "dpo" | "ipo" | "orpo" | "simpo" | "cpo" | "kto" | "rm" | "grpo" | "ppo" ...
    lora: Lora | None = None
    trained: Trained | None = None  # method "freeze"
    quant: Quant | None = None
    autocast: DType | None = None
    master_weights: bool = False
    padded: bool = False
    packing: bool = False
    checkpointing: str = "none"
    reentrant: bool = False
    attention: str = "sdpa"
    loss: str = "full"
    keeps_outputs: bool = False
    returns_cache: bool = False
    fused_kernels: bool = False  # Liger RMSNorm/SwiGLU/RoPE in place of the eager modules
    compiled: bool = False
    products: str = "16bit"
    sharding: Sharding = field(default_factory=Sharding)
    parallel: Parallel = field(default_factory=Parallel)
    beside: Beside = field(default_factory=Beside)
    epochs: float | None = None
    max_steps: int | None = None
    max_samples: int | None = None
    eval_batch: int | None = None  # None: no evaluation during the run
    images: Images | None = None  # pictures of a sample; None: text alone, a vision tower then idles
    frozen: tuple[str, ...] = ()  # of "tower", "projector", "language": neither trained nor adapted
    stack: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    sources: Mapping[str, Source] = field(default_factory=lambda: _NO_SOURCES, compare=False)

    @property
    def rows(self) -> int:
        """Rows of a forward pass: a pair of preference data is two."""
        return self.micro_batch * (2 if self.task in _PAIRS else 1)

    @property
    def method_label(self) -> str:
        """The name people use: full, freeze, LoRA, QLoRA, DoRA and so on."""
        if self.lora is None:
            return self.method
        name = _ADAPTERS[self.lora.kind]
        return f"Q{name}" if self.quant else name
