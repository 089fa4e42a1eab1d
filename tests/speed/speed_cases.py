"""Models, cards and recipes that the tests of this folder share."""

from dataclasses import replace

from finefit.workload import Cluster, DType, Gpu, Lora, Model, Optimizer, Quant, Recipe, Sharding

LLAMA_7B = Model("llama-7b", "llama", 4096, 32, 32, 32, 128, 11008, 32000, tied=False)
LLAMA_32_3B = Model("llama-3.2-3b", "llama", 3072, 28, 24, 8, 128, 8192, 128256, tied=True)
LLAMA_3_8B = Model("llama-3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)
MISTRAL_7B = Model("mistral-7b", "mistral", 4096, 32, 32, 8, 128, 14336, 32000, tied=False)
GPT2 = Model(
    "gpt2",
    "gpt2",
    768,
    12,
    12,
    12,
    64,
    3072,
    50257,
    tied=True,
    gated_mlp=False,
    norm="layer",
    position="learned",
    max_position=1024,
    fused_qkv=True,
)
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def gpu(gpu_id: str, arch: str, tflops: float, gb_s: float, link: str = "PCIe4", link_gb_s: float | None = None) -> Gpu:
    """A card by its data-sheet figures."""
    bandwidth = None if link_gb_s is None else link_gb_s * 1e9
    peak = tflops * 1e12
    return Gpu(gpu_id, gpu_id, arch, 80 << 30, 80, gb_s * 1e9, peak, peak, link, bandwidth, None, "data sheet", "high")


A100 = gpu("a100-sxm-80", "Ampere", 312, 2039, "NVLink3", 600)
A800 = gpu("a800-sxm-80", "Ampere", 312, 2039, "NVLink3 cut", 400)
H100 = gpu("h100-sxm-80", "Hopper", 989.4, 3352, "NVLink4", 900)
RTX_4090 = gpu("rtx-4090", "Ada", 165.2, 1008)
RTX_6000_ADA = gpu("rtx-6000-ada", "Ada", 364, 960)
CARDS = (A100, H100, RTX_4090, RTX_6000_ADA)


def full(seq_len: int = 1024, micro_batch: int = 1, **changes: object) -> Recipe:
    """Full fine-tuning in pure bf16 with flash attention."""
    base = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len, micro_batch, attention="flash2")
    return replace(base, **changes)  # type: ignore[arg-type]


def lora(
    seq_len: int = 1024, micro_batch: int = 1, rank: int = 8, targets: tuple[str, ...] = ALL_LINEAR, **changes: object
) -> Recipe:
    """LoRA on a bf16 base."""
    return replace(full(seq_len, micro_batch), method="lora", lora=Lora(rank, 16, targets=targets), **changes)  # type: ignore[arg-type]


def qlora(seq_len: int = 1024, micro_batch: int = 1, **changes: object) -> Recipe:
    """LoRA on an NF4 base."""
    return replace(lora(seq_len, micro_batch), quant=Quant("nf4", double=True), **changes)  # type: ignore[arg-type]


def on(card: Gpu, count: int = 1) -> Cluster:
    """That many of a card in one machine."""
    return Cluster(card, count)


def sharded(recipe: Recipe, kind: str, ranks: int) -> Recipe:
    """The recipe under a sharding scheme."""
    return replace(recipe, sharding=Sharding(kind, ranks))
