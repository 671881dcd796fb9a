"""A bill of materials of the environment that runs this: CycloneDX 1.5 as JSON on standard output (`make sbom`)."""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, distributions


def component(one: Distribution) -> dict[str, object]:
    """A package: name, version, purl and licence as its metadata has them."""
    name, metadata = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one.metadata
    licence = metadata.get("License-Expression") or (metadata.get("License") or "").partition("\n")[0][:100]
    about: dict[str, object] = {"type": "library", "name": name, "version": one.version}
    about["purl"] = f"pkg:pypi/{name}@{one.version}"
    return about | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def main() -> None:
    """Every installed package once, by name."""
    found = {str(about["name"]): about for about in map(component, distributions())}
    components = [found[name] for name in sorted(found)]
    print(
        json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}, indent=1)
    )


if __name__ == "__main__":
    main()
