"""What a step does beside training one micro-batch: generation, passes of frozen models, a pipeline's waiting batches.

A model beside the trained one (a reference, a critic, a reward model) is a player of its own that writes into the
same list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from finefit.step.ops import Drop, Op
from finefit.step.preference import GENERATING
from finefit.step.size import Size

if TYPE_CHECKING:
    from finefit.memory.model import Player


class Beside:
    """Other models and passes of a step.

    Attributes:
        reference: the frozen model that a step compares with; its weights are loaded unless it is the trained one.
        resident: models that only lie there while this one trains (a critic with its optimizer, a reward model).
        cache: keys and values of one layer while ``generate`` runs; None: nothing is generated here.
        logits: fp32 logits that a second reference pass finds held; None: the loss never makes them whole.
    """

    def __init__(self, player: Player) -> None:
        self.player = player
        self.reference: Player | None = None
        self.resident: list[Player] = []
        self.cache: Size | None = None
        self.logits: Size | None = None

    def load(self) -> None:
        """Weights of the other models."""
        if self.reference is not None and self.player.recipe.beside.reference == "copy":
            self.reference.load()
        for player in self.resident:
            player.load()

    def allocate_states(self) -> None:
        """Optimizer states of a critic."""
        for player in self.resident:
            player.allocate_states()

    def prepare(self, step: int) -> None:
        """What reinforcement learning does before a step: text, then the reference's log-probabilities of it.

        trl 1.16.0 grpo_trainer.py ``_generate_and_score_completions``, verl 0.9.1 trainer/ppo/ray_trainer.py.
        """
        self.generate(step)
        if self.reference is not None and self.player.recipe.task in GENERATING:
            self.reference.infer("reference", step)

    def generate(self, step: int) -> None:
        """Keys and values of all rows that ``generate`` extends at once, at their full length.

        transformers 5.24.0 cache_utils.py DynamicLayer.update concatenates: one layer's are there twice.
        """
        player, size = self.player, self.cache
        if size is None:
            return
        player.enter("generation", step)
        layers = [item for item in enumerate(player.step.blocks) if item[1].layer is not None]
        held = {n: player.alloc(size, "activations", "kv_cache", b.name) for n, b in player.each_block(layers)}
        player.release(player.alloc(size, "activations", "cat"))
        for number, _ in player.each_block(layers):
            player.release(held[number])

    def compare(self, phase: str, step: int) -> None:
        """The reference's log-probabilities, while what the trained model returned is still held.

        KTO asks for those of mismatched completions too, and holds the logits of the first pass meanwhile
        where they are whole (llamafactory 0.9.5 train/kto/trainer.py ``concatenated_forward``).
        """
        player = self.reference
        if player is None or player.recipe.task in GENERATING:
            return
        player.infer(phase, step)
        if player.recipe.task == "kto":
            held = [] if self.logits is None else [player.alloc(self.logits, "logits", "_to_copy")]
            player.infer(phase, step)
            player.release_all(held)

    def waiting(self, step: int) -> list[dict[tuple[int, int], list[int]]]:
        """Embedding and layers of the micro-batches whose backward waits for later pipeline stages.

        One forward, one backward (Narayanan 2021, arXiv 2104.04473): the first of p stages holds p micro-batches.
        Returns what each keeps.
        """
        recipe = self.player.recipe
        count = 0 if recipe.parallel.one_at_a_time else min(recipe.parallel.pipeline, recipe.grad_accum) - 1
        return [self._waiting(step) for _ in range(count)]

    def _waiting(self, step: int) -> dict[tuple[int, int], list[int]]:
        player = self.player
        player.enter("forward", step)
        stage = [item for item in enumerate(player.step.blocks) if item[1].phase == "forward"]
        made: set[int] = set()
        for number, block in player.each_block(stage):
            player.sharding.before_forward(number)
            player.forward(number, block)
            player.sharding.after_forward(number)
            made |= {value for item in block.program if isinstance(item, Op) for value in item.outs}
        for block in player.step.blocks[len(stage) :]:
            for item in block.program:
                if isinstance(item, Drop) and item.value in made:
                    player.drop_folded(item)
        kept, player.kept = player.kept, {}
        return kept

    def give_back(self, waiting: list[dict[tuple[int, int], list[int]]]) -> None:
        """What the waiting micro-batches kept, when the step has gone through them."""
        player = self.player
        for kept in waiting:
            for number, _ in player.each_block(enumerate(player.step.blocks)):
                for (owner, _), tensors in kept.items():
                    if owner == number:
                        player.release_all(tensors)
