"""Where files are: when two spellings of a location are one place, and what lies in the warehouse of a lake.

    s3a://b/wh/  S3://b/wh          one place: schemes differ in letters alone, a slash at the end says nothing
    file:/wh  file:///wh  /wh       one place, and links of a local file system are followed
    s3://b/wh2/t                    not in s3://b/wh
    s3://b/wh/../other              not in s3://b/wh, nor is s3://b/other/../wh/t

A store takes `..` and `//` as letters of a key, while some programs resolve them before they ask (Hadoop's paths do).
So a URI lies inside where it does under both readings. `%2e` is taken literally by all.
"""

from __future__ import annotations

import os
import posixpath

_S3 = ("s3a", "s3n")


def plain(location: str) -> str:
    """A location without what may be written in several ways: `file:`, `s3a:`, a slash at the end."""
    scheme, colon, rest = location.partition(":")
    scheme = scheme.lower()
    if colon and scheme == "file":
        location = "/" + rest.lstrip("/")
    elif rest.startswith("//"):
        location = f"{'s3' if scheme in _S3 else scheme}:{rest}"
    return location.rstrip("/") or location[:1]


def real(location: str) -> str:
    """A location as `plain` gives it, with `..` and `//` resolved and the links of a local file system followed."""
    location = plain(location)
    if "://" not in location:
        return os.path.realpath(location)
    scheme, _, path = location.partition("://")
    return f"{scheme}://{posixpath.normpath(path)}"


def is_inside(location: str, root: str) -> bool:
    """Whether a location is a place or lies below it."""
    readings = [(real(location), real(root))]
    if "://" in readings[0][1]:
        readings.append((plain(location), plain(root)))
    return all(f"{place}/".startswith(f"{below.rstrip('/')}/") for place, below in readings)


def is_local(location: str) -> bool:
    """Whether a location is in a file system of this machine, where a look costs nothing."""
    return "://" not in plain(location)
