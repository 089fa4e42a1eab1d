"""Speed of ``finefit lengths`` against bare ``encode_batch``: ``python -m benchmarks.lengths_speed DATA TOKENIZER``.

DATA is a JSONL file of ShareGPT rows, TOKENIZER a tokenizer.json. Both count the same texts in the same run, in turns;
the best of each is compared. finefit reads the file, parses it and applies the template besides.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from finefit.formats.data_rows import read_rows
from finefit.formats.data_shapes import sample_of, shape_of
from finefit.resolve.chat_templates import llamafactory
from finefit.resolve.measure import measure
from finefit.resolve.token_count import counter_of

_TURNS, _AT_ONCE = 5, 1024


def main(data: Path, tokenizer: Path) -> None:
    """Print tokens a second of both and their ratio."""
    from tokenizers import Tokenizer

    template = llamafactory("chatml", bos="", eos="", where="")
    counter, bare = counter_of("", tokenizer), Tokenizer.from_file(str(tokenizer))
    texts = [
        template(sample_of(row.value, shape_of(row.value, str(data))).turns)
        for row in read_rows(data)
        if row.value is not None
    ]
    ours, theirs = [], []
    for _ in range(_TURNS):
        start = time.perf_counter()
        tokens = measure(data, counter, template).tokens
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        again = 0
        for at in range(0, len(texts), _AT_ONCE):
            again += sum(map(len, bare.encode_batch(texts[at : at + _AT_ONCE], add_special_tokens=False)))
        theirs.append(time.perf_counter() - start)
        assert tokens == again, "both count the same tokens"
    print(f"{tokens:,} tokens of {len(texts):,} samples")
    print(f"finefit lengths      {tokens / min(ours):12,.0f} tokens/s")
    print(f"encode_batch         {tokens / min(theirs):12,.0f} tokens/s")
    print(f"ratio                {min(theirs) / min(ours):12.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
