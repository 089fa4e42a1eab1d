"""Collect the sentences to translate and compile the translations: ``python -m scripts.messages``.

Writes each language's ``finefit.po`` (new msgids empty, gone ones dropped) and its ``finefit.mo``.
"""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from finefit.report.i18n import DOMAIN, LANGUAGES, LOCALE
from scripts._sentences import msgids

_DATE = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)  # fixed, so that the same sentences give the same files


def po_path(language: str) -> Path:
    """Where the translations of a language are written by hand."""
    return LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def read(language: str) -> Catalog:
    """The translations of a language; an empty catalogue where there are none yet."""
    path = po_path(language)
    if not path.exists():
        return Catalog(language)
    with path.open("rb") as file:
        return read_po(file, language)


def merged(language: str) -> Catalog:
    """Today's msgids with the translations that exist."""
    old = read(language)
    new = Catalog(
        language, DOMAIN, project=DOMAIN, version="1", msgid_bugs_address="none", charset="utf-8", fuzzy=False
    )
    new.creation_date = new.revision_date = _DATE
    new.last_translator = new.language_team = "finefit"
    new.copyright_holder = "the finefit authors"
    for msgid, modules in sorted(msgids().items()):
        known = old.get(msgid)
        new.add(msgid, known.string if known else "", locations=[(module, 0) for module in modules])
    return new


def po(catalogue: Catalog) -> bytes:
    """A catalogue as a .po file."""
    out = io.BytesIO()
    write_po(out, catalogue, width=110, include_lineno=False, sort_output=True, omit_header=False)
    return out.getvalue()


def mo(catalogue: Catalog) -> bytes:
    """A catalogue as a .mo file."""
    out = io.BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def main() -> None:
    """Write all languages; say how many msgids wait for a translation."""
    for language in LANGUAGES:
        if language == "en":
            continue
        catalogue = merged(language)
        path = po_path(language)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(po(catalogue))
        path.with_suffix(".mo").write_bytes(mo(catalogue))
        waiting = [message.id for message in catalogue if message.id and not message.string]
        print(f"{language}: {len(catalogue)} msgids, {len(waiting)} without a translation")
        for msgid in waiting:
            print(f"  {msgid}")


if __name__ == "__main__":
    main()
