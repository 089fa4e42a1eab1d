"""Names of things and forms of numbers, as every report shows them. GiB, hours and money meet a reader here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from finefit.report.i18n import N_, Translator
from finefit.units import Money, gib
from finefit.workload.sourced import Origin

if TYPE_CHECKING:
    from finefit.catalog.currency import Rate

PARTS = {
    "weights": N_("weights"),
    "adapters": N_("adapters"),
    "gradients": N_("gradients"),
    "optimizer": N_("optimizer states"),
    "activations": N_("activations"),
    "logits": N_("logits and loss"),
    "buffers": N_("buffers"),
    "workspace": N_("workspace"),
}
PHASES = {
    "load": N_("loading"),
    "generation": N_("generation"),
    "forward": N_("forward pass"),
    "loss": N_("loss"),
    "reference": N_("pass of the reference model"),
    "backward": N_("backward pass"),
    "optimizer": N_("optimizer step"),
    "evaluation": N_("evaluation"),
    "save": N_("checkpoint saving"),
}
# Keys are the values of the planner's enumerations, which are strings: memory alone loads no planner.
FITS = {
    "yes": N_("fits"),
    "tight": N_("tight"),
    "no": N_("does not fit"),
    "unknown": N_("unknown"),
}
VERDICTS = {
    "single_card_ok": N_("One card is enough."),
    "single_card_tight": N_("One card may just hold it."),
    "must_shard": N_("One card does not hold it: the states must be spread over several."),
    "does_not_fit": N_("No machine of these cards holds it as configured: do not rent yet."),
    "undecided": N_("No GPU was stated: memory and the cards that hold it."),
}
KEPT = {"yes": N_("kept"), "no": N_("not kept"), "unknown": N_("undecided")}
TOO_LARGE = {
    "states": N_("Weights and states are too large; method, precision or sharding help."),
    "activations": N_("Activations and logits are too large; batch, length, checkpointing or the loss help."),
}
ORIGINS = {
    Origin.STATED: N_("stated"),
    Origin.DEFAULT: N_("default"),
    Origin.DERIVED: N_("derived"),
    Origin.ASSUMED: N_("assumed"),
}
BILL_ITEMS = {
    "GPU-hours": N_("GPU-hours"),
    "set-up": N_("set-up"),
    "checkpoint storage": N_("checkpoint storage"),
    "egress": N_("egress"),
}
UNITS = {"GPU-hour": N_("GPU-hour"), "GB-month": N_("GB-month"), "GB": N_("GB")}
KINDS = {
    "on-demand": N_("on-demand"),
    "spot": N_("spot"),
    "community": N_("community"),
    "monthly": N_("monthly"),
    "yearly": N_("yearly"),
}
METHODS = {
    "full": N_("full fine-tuning"),
    "lora": N_("LoRA"),
    "qlora": N_("QLoRA"),
    "freeze": N_("a part of the parameters"),
}
# Where the seconds of a step go, in the order of speed.steptime.
TIMES = {
    "linear": N_("matrix products"),
    "attention": N_("attention"),
    "elementwise": N_("norms and activations"),
    "loss": N_("loss"),
    "weight_reads": N_("reading weights"),
    "dequantisation": N_("dequantisation"),
    "launch": N_("kernel launches"),
    "bubble": N_("waiting for other pipeline stages"),
    "communication": N_("communication"),
    "optimizer": N_("optimizer step"),
}

# Inputs in the order a reader checks them.
FIELDS = {
    "model": N_("model"),
    "method": N_("method"),
    "task": N_("task"),
    "seq_len": N_("tokens of the longest sample"),
    "micro_batch": N_("micro-batch"),
    "grad_accum": N_("gradient accumulation"),
    "epochs": N_("epochs"),
    "max_steps": N_("most steps"),
    "max_samples": N_("most samples"),
    "lengths.samples": N_("samples"),
    "lengths.mean": N_("mean length"),
    "lengths.tokens": N_("tokens an epoch"),
    "lengths.longest": N_("longest sample"),
    "weight_dtype": N_("weights held in"),
    "autocast": N_("autocast"),
    "master_weights": N_("extra fp32 copy"),
    "images": N_("pictures"),
    "images.count": N_("pictures a sample"),
    "images.width": N_("width of a picture in pixels"),
    "images.height": N_("height of a picture in pixels"),
    "images.max_pixels": N_("pixels of a picture at most"),
    "frozen": N_("parts left alone"),
    "quant.kind": N_("quantisation"),
    "quant.double": N_("double quantisation"),
    "quant.kbit_prepare": N_("other weights to fp32"),
    "quant.recast": N_("embeddings and head back to 16 bits"),
    "quant.compute_dtype": N_("compute type of 4-bit products"),
    "trained.layers": N_("trained layers"),
    "trained.modules": N_("trained modules of a layer"),
    "trained.outside": N_("trained outside the layers"),
    "trained.dtype": N_("trained parameters held in"),
    "lora.kind": N_("kind of adapter"),
    "lora.rank": N_("LoRA rank"),
    "lora.targets": N_("LoRA targets"),
    "lora.dtype": N_("adapters held in"),
    "lora.saved_dtype": N_("modules trained in full held in"),
    "lora.dropout": N_("LoRA dropout"),
    "lora.modules_to_save": N_("modules trained in full"),
    "optimizer.name": N_("optimizer"),
    "optimizer.impl": N_("optimizer kernel"),
    "optimizer.state_dtype": N_("optimizer states held in"),
    "optimizer.momentum": N_("momentum"),
    "optimizer.paged": N_("paged optimizer"),
    "optimizer.rank": N_("rank of projected gradients"),
    "optimizer.targets": N_("projected gradients"),
    "optimizer.in_backward": N_("update during backward"),
    "checkpointing": N_("gradient checkpointing"),
    "reentrant": N_("reentrant checkpointing"),
    "attention": N_("attention"),
    "loss": N_("loss"),
    "keeps_outputs": N_("outputs kept through backward"),
    "returns_cache": N_("keys and values returned in training"),
    "fused_kernels": N_("fused kernels"),
    "compiled": N_("compiled"),
    "products": N_("matrix products in"),
    "padded": N_("padded rows"),
    "packing": N_("packing"),
    "eval_batch": N_("evaluation batch"),
    "sharding.kind": N_("sharding"),
    "sharding.ranks": N_("GPUs"),
    "parallel.tensor": N_("tensor-parallel ranks"),
    "parallel.pipeline": N_("pipeline stages"),
    "parallel.context": N_("ranks that share a row's tokens"),
    "parallel.expert": N_("expert-parallel ranks"),
    "parallel.replicas": N_("groups that each hold all shards"),
    "parallel.vocabulary": N_("vocabulary cut among the tensor ranks"),
    "beside.reference": N_("reference model"),
    "beside.reference_dtype": N_("reference model held in"),
    "beside.reference_offload": N_("reference model in host memory"),
    "beside.critic": N_("value model"),
    "beside.reward": N_("reward model on the GPU"),
    "beside.engine_share": N_("share of the card for the inference engine"),
    "beside.engine_sleeps": N_("the engine gives its memory back while training"),
    "beside.states_leave": N_("states in host memory while text is generated"),
    "beside.generated": N_("micro-batches generated at once"),
    "sharding.offload_optimizer": N_("optimizer offloaded"),
    "sharding.offload_params": N_("parameters offloaded"),
    "sharding.reduce_bucket": N_("reduce bucket, elements"),
    "sharding.gather_bucket": N_("gather bucket, elements"),
    "sharding.prefetch_bucket": N_("prefetch bucket, elements"),
    "sharding.persistence_threshold": N_("parameters never sharded below, elements"),
    "sharding.max_live": N_("gathered at once at most, elements"),
    "sharding.overlap_comm": N_("communication overlaps"),
    "stack": N_("library versions"),
}
VALUES = {
    "none": N_("none"),
    "full": N_("full"),
    "sft": N_("supervised fine-tuning"),
    "pt": N_("pre-training"),
    "unset": N_("not set"),
    "yes": N_("yes"),
    "no": N_("no"),
}


def name(table: Mapping[str, str], key: str, t: Translator) -> str:
    """The reader's name of a key; the key itself where the table does not hold it."""
    return t(table[key]) if key in table else key


def method(label: str, t: Translator) -> str:
    """The reader's name of a training method."""
    return name(METHODS, label.lower(), t) if label.lower() in METHODS else label


def between(low: int, high: int | None, t: Translator) -> str:
    """A bracket of bytes; from below where nobody looked for its upper end."""
    if high is None:
        return t("at least {low}", low=size(low, t))
    ends = size(low, t), size(high, t)
    first = ends[0].removesuffix(" GiB") if ends[1].endswith(" GiB") else ends[0]  # the unit once
    return t("{low} to {high}", low=first, high=ends[1])


def size(nbytes: int | None, t: Translator) -> str:
    """Bytes in GiB, in MiB below a tenth of one."""
    if nbytes is None:
        return t("unknown")
    if nbytes and abs(gib(nbytes)) < 0.1:
        return f"{nbytes / 2**20:.1f} MiB"
    return f"{gib(nbytes):.2f} GiB"


def count(number: float) -> str:
    """A count with its thousands apart."""
    return f"{number:,.0f}"


def figures(number: float) -> str:
    """Three significant figures, all digits above a thousand."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def parameters(number: int) -> str:
    """Parameters as people say them: 8.03 B, 41.9 M."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:.3g} {letter}"
    return str(number)


def duration(hours: float | None, t: Translator) -> str:
    """Hours, minutes below two hours, days beside them from two days."""
    if hours is None:
        return t("unknown")
    if hours * 60 < 1:
        return t("{n} s", n=f"{hours * 3600:.2g}")
    if hours < 2:
        return t("{n} min", n=figures(hours * 60))
    if hours < 48:
        return t("{n} h", n=figures(hours))
    return t("{n} h ({days} days)", n=figures(hours), days=figures(hours / 24))


def money(amount: Money | None, t: Translator) -> str:
    """An amount with its currency."""
    if amount is None:
        return t("unknown")
    return t("{amount} CNY" if amount.currency == "CNY" else "{amount} USD", amount=_digits(amount.amount))


def confidence(given: str, t: Translator) -> str:
    """How far a source is trusted."""
    return name(_CONFIDENCE, given, t)


_CONFIDENCE = {"high": N_("high"), "medium": N_("medium"), "low": N_("low")}


def both(amount: Money, quoted: Money | None, t: Translator) -> str:
    """An amount, with what was published in another currency behind it."""
    if quoted is None or quoted.currency == amount.currency:
        return money(amount, t)
    return t("{amount} ({quoted})", amount=money(amount, t), quoted=money(quoted, t))


def converted(rate: Rate, t: Translator) -> str:
    """The exchange rate behind converted amounts."""
    return t(
        "Converted at 1 {base} = {rate} {quote} ({date}, {source}).",
        base=rate.base,
        rate=f"{rate.rate:f}",
        quote=rate.quote,
        date=date(rate.date),
        source=rate.source,
    )


def money_range(amounts: Iterable[Money | None], t: Translator, *, mark: str = " / ") -> str:
    """Amounts of one currency as low / median / high, the currency once; one figure where all are the same."""
    known = [each for each in amounts if each is not None]
    if not known:
        return t("unknown")
    largest = max(abs(each.amount) for each in known)
    figures = dict.fromkeys(_digits(each.amount, largest) for each in known)
    shown = mark.join(_digits(each.amount, largest) for each in known) if len(figures) > 1 else next(iter(figures))
    return t("{amount} CNY" if known[0].currency == "CNY" else "{amount} USD", amount=shown)


def percent(share: float) -> str:
    """A share as a percentage, one digit below ten."""
    value = share * 100
    if 0 < abs(value) < 0.05:
        return "< 0.1 %"
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"


def value(found: object, t: Translator) -> str:
    """The value of an input."""
    if found is None:
        return t(VALUES["unset"])
    if isinstance(found, bool):
        return t(VALUES["yes"] if found else VALUES["no"])
    if isinstance(found, float):
        return f"{found:g}"
    if isinstance(found, int):
        return count(found)
    if isinstance(found, Mapping):
        return ", ".join(f"{key} {each}" for key, each in found.items()) or t(VALUES["none"])
    if isinstance(found, tuple):
        return ", ".join(map(str, found)) or t(VALUES["none"])
    return name(VALUES, str(found), t)


def date(day: dt.date) -> str:
    """A date, the same in every language."""
    return day.isoformat()


def amount(number: Decimal) -> str:
    """The digits of an amount of money alone."""
    return _digits(number)


def _digits(amount: Decimal, largest: Decimal | None = None) -> str:
    """Cents, or two figures of the largest of the amounts beside it where that is below ten cents."""
    decimals = max(2, 1 - abs(amount if largest is None else largest).adjusted())
    return f"{amount:,.{decimals}f}"
