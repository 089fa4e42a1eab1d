"""Losses on log-probabilities of whole completions (DPO, KTO, GRPO, PPO) and on scores (reward models).

llamafactory 0.9.5 ``train/trainer_utils.py`` ``get_batch_logps`` (full), torchtune 0.6.1
``rlhf/_generation`` and ``rlhf/utils`` ``get_batch_log_probs`` (native), verl 0.9.1 ``utils/torch_functional.py``
``logprobs_from_logits`` (inplace). TRL's fused head is ``loss.chunked_loss``.
"""

from __future__ import annotations

from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType

# What these methods train on: log-probabilities of tokens, not the model's own loss
LOGPROBS = frozenset({"dpo", "ipo", "orpo", "simpo", "cpo", "kto", "grpo", "rloo", "ppo"})
# Of these, the ones that generate: the reference's log-probabilities are known before a step begins
GENERATING = frozenset({"grpo", "rloo", "ppo"})


def logprob_loss(net: Net, hidden: Ref, head: str, bias: str | None) -> tuple[Ref, Ref]:
    """log_softmax over all logits, then the labels' entries; returns (loss, logits), held until the loss is known.

    In fp32, or with the loss "native" in the dtype of the logits.
    """
    tape, vocab = net.tape, net.model.vocab
    logits = net.dense(hidden, head, vocab, bias=bias, kind="head")
    if net.recipe.loss != "native" or net.autocast is not None:
        logits = net.cast(logits, DType.FP32)
    (shifted,) = tape.split(logits, [vocab], "slice")
    whole = Size(logits.dtype.bytes, vocab, ("b", "s"))  # logits[:, :-1] is made contiguous inside the kernel
    logprobs = tape.op("log_softmax", [shifted], vocab, logits.dtype, save_out=True, temps=(whole,), category="logits")
    del shifted
    index = tape.leaf(1, DType.INT64, name="labels")
    return tape.op("gather", [logprobs], 1, logprobs.dtype, saves=[index], category="logits"), logits


def inplace_loss(net: Net, hidden: Ref, head: str, bias: str | None) -> Ref:
    """FlashAttention's cross entropy with ``inplace_backward``: the logits' buffer becomes their gradient."""
    tape, vocab = net.tape, net.model.vocab
    trainable = net.trainable(head)
    half = hidden.dtype if net.autocast is None else net.autocast
    logits = tape.op(
        "mm" if bias is None else "addmm",
        [hidden],
        vocab,
        half,
        saves=[hidden] if trainable else [],
        save_out=True,
        params=(head,) if trainable else (),
        flops=Flops("head", 2 * net.model.hidden * vocab),
        category="logits",
    )
    log_sum = tape.leaf(1, DType.FP32, name="logsumexp")
    return tape.op("cross_entropy", [logits], 1, DType.FP32, saves=[log_sum], passes=True, category="logits")


def score_loss(net: Net, hidden: Ref, head: str) -> Ref:
    """One score a token instead of logits (transformers 5.24.0 modeling_layers.py, num_labels=1)."""
    return net.dense(hidden, head, 1)


def value_head_loss(net: Net, hidden: Ref, head: str, value: str) -> tuple[Ref, Ref]:
    """trl 0.24.0 ``AutoModelForCausalLMWithValueHead``: all logits in fp32, and a score from hidden states in fp32.

    Returns (loss, logits); nothing flows back through the logits, which go when the loss is known.
    """
    logits = net.cast(net.dense(hidden, head, net.model.vocab, kind="head"), DType.FP32)
    return net.dense(net.cast(hidden, net.weight_dtype(value)), value, 1), logits
