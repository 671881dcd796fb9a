"""Build the site and look it over: `python tools/site/build.py` (make docs).

    site/VERSION       the pages; `dev`, or the version of the tag that is checked out
    site/versions.json what the selector of versions reads (over http; opened from disk the page has no selector)

Checked are: spelling, the strict build of MkDocs, every link and anchor inside of the site, that no page fetches
anything from elsewhere, and, where there is a Chromium and axe-core, barriers, errors of scripts and the search.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from browse import browse
from links import broken, foreign

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
SPELLED = (
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "src",
    "examples",
    "reproductions",
    "tools/site",
)


def version() -> str:
    """The tag that is checked out, without its v; else `dev`."""
    told = subprocess.run(["git", "describe", "--tags", "--exact-match"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip().removeprefix("v") or "dev"


def spell() -> None:
    """Words that are often misspelt; `ignore` has those that are right here."""
    words = ",".join((ROOT / "tools" / "site" / "right_words.txt").read_text(encoding="utf-8").split())
    skipped = "*.svg,*.json,*.csv,*.js,*.min.*,__pycache__"
    command = [sys.executable, "-m", "codespell_lib", "--skip", skipped, "--ignore-words-list", words, *SPELLED]
    subprocess.run(command, cwd=ROOT, check=True)


def write_versions(site: Path) -> None:
    """The versions that lie beside each other, the newest first, and a page that leads to the newest."""
    names = sorted((folder.name for folder in site.iterdir() if (folder / "index.html").exists()), reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in names]
    (site / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    leads = f'<meta http-equiv="refresh" content="0; url={names[0]}/">'
    first = f'<!doctype html><html lang="en"><title>fedmerit</title>{leads}'
    (site / "index.html").write_text(first, encoding="utf-8")


def main() -> None:
    """Everything in turn; the first thing that is wrong ends it."""
    begun = time.monotonic()
    spell()
    pages = SITE / version()
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(pages)], cwd=ROOT, env=quiet, check=True)
    built = time.monotonic()
    write_versions(SITE)
    wrong = [*broken(pages), *foreign(pages)]
    wrong += browse(SITE, pages.name)
    print("\n".join(wrong))
    print(f"{pages.relative_to(ROOT)}: built in {built - begun:.0f} s, looked over in {time.monotonic() - built:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
