"""GET with ranges, limits and time-outs, by the standard library; proxies of the environment are used."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from typing import Any

from finefit import __version__

_TIMEOUT = 10.0  # seconds without a byte
_PATIENCE = 60.0  # seconds for one answer
_CHUNK = 65_536
_WEB = ("http://", "https://")


class Silent(Exception):
    """No answer, or a server in trouble; the text says which."""


class Refused(Exception):
    """An answer that is no file.

    Attributes:
        status: of HTTP; code: what Hugging Face says of it in X-Error-Code ("GatedRepo", "EntryNotFound"), else "".
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects to web addresses alone."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith(_WEB):
            raise ValueError("a redirect that leaves the web")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Http:
    """Requests with one token, which redirects to other addresses do not get."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.opener = urllib.request.build_opener(_WebOnly)

    def get(self, url: str, limit: int, part: tuple[int, int] | None = None) -> bytes:
        """A body of at most ``limit`` bytes, or ``part`` of it (first byte, count), also where ranges are ignored.

        Raises:
            Silent, Refused: no file came.
        """
        try:
            if not url.startswith(_WEB):
                raise ValueError("no web address")
            request = urllib.request.Request(url, headers={"User-Agent": f"finefit/{__version__}"})
            if self.token:
                request.add_unredirected_header("Authorization", f"Bearer {self.token}")
            if part:
                request.add_header("Range", f"bytes={part[0]}-{part[0] + part[1] - 1}")
            with self.opener.open(request, timeout=_TIMEOUT) as answer:
                skipped = part[0] if part and answer.status != 206 else 0
                wanted = skipped + (part[1] if part else limit + 1)
                body = self._read(answer, wanted)[skipped:]
        except urllib.error.HTTPError as error:
            code = error.headers.get("X-Error-Code", "") if error.headers else ""
            error.close()
            if error.code == 429 or error.code >= 500:
                raise Silent(f"HTTP {error.code}") from None
            raise Refused(error.code, code) from None
        except TimeoutError:
            raise Silent("time-out") from None
        except urllib.error.URLError as error:
            slow = isinstance(error.reason, TimeoutError)
            raise Silent("time-out" if slow else "no connection") from None
        except (OSError, http.client.HTTPException, ValueError):
            raise Silent("no connection") from None
        if not part and len(body) > limit:
            raise Silent("more data than such a file has")
        return body

    @staticmethod
    def _read(answer: http.client.HTTPResponse, wanted: int) -> bytes:
        """Up to ``wanted`` bytes, before patience ends."""
        end = time.monotonic() + _PATIENCE
        body = bytearray()
        while len(body) < wanted:
            if time.monotonic() > end:
                raise TimeoutError
            piece = answer.read1(min(_CHUNK, wanted - len(body)))
            if not piece:
                break
            body += piece
        return bytes(body)
