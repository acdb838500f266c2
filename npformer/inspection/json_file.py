"""Everything an inspection holds, as JSON in UTF-8: for other programs, and for whoever wants all the digits."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from npformer.arguments import check_path
from npformer.inspection.comparison import Comparison
from npformer.inspection.diagnosis import Finding
from npformer.inspection.inspection import Inspection
from npformer.inspection.tokens import Token
from npformer.whole_file import write_whole


def write_json(path: str | os.PathLike[str], shown: Inspection | Comparison) -> str:
    """One object: title, note, loss_name, maps and findings; of a comparison title, A, B, changes and findings. Tokens that
    are bytes become {"bytes": "e6 98 a5"}."""
    check_path("to_json", path)
    document = of_comparison(shown) if isinstance(shown, Comparison) else of_inspection(shown)
    data = json.dumps(document, allow_nan=False).encode()
    write_whole(path, lambda file: file.write(data))
    return os.fspath(path)


def of_comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "title": comparison.title,
        "A": of_inspection(comparison.good),
        "B": of_inspection(comparison.bad),
        "changes": [change._asdict() for change in comparison.changes],
        "findings": of_findings(comparison.diagnose()),
    }


def of_inspection(inspection: Inspection) -> dict[str, Any]:
    findings = of_findings(inspection.diagnose())  # first: what it learns by ablation is a metric
    return {
        "title": inspection.title,
        "note": inspection.note,
        "loss_name": inspection.loss_name,
        "maps": [
            {
                "kind": map.kind,
                "layer": map.layer,
                "head": map.head,
                "named_by": map.named_by,
                "query_tokens": [token_json(token) for token in map.query_tokens],
                "key_tokens": [token_json(token) for token in map.key_tokens],
                "weights": map.weights.tolist(),
                "keep": map.keep.tolist(),
                "gradient": None if map.gradient is None else map.gradient.tolist(),
                "metrics": inspection.metrics(map),
            }
            for map in inspection.maps
        ],
        "findings": findings,
    }


def of_findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) | {"sentence": finding.sentence, "is_fault": finding.is_fault} for finding in findings]


def token_json(token: Token) -> Any:
    return {"bytes": token.hex(" ")} if isinstance(token, bytes) else token
