"""The parts of a page that are words and numbers alone: findings, who attends to a word, and prose."""

import re

from npformer.inspection.diagnosis import Finding, summary
from npformer.inspection.page import maps
from npformer.inspection.page.part import Part, escape, part_of, table
from npformer.inspection.who_attends import WhoAttends


@part_of.register(list)
def findings(found: list[Finding]) -> Part:
    """In few sentences, faults first. TypeError for a list of anything else."""
    strangers = [item for item in found if not isinstance(item, Finding)]
    if strangers:
        raise TypeError(f"write_page: a list must hold findings, got a {type(strangers[0]).__name__}")
    if not found:
        return prose("No findings: no head and no layer has numbers that call for a look.")
    items = "".join(
        f"<li>{'<strong>Fault:</strong> ' if finding.is_fault else ''}{escape(maps.cut_sentence(sentence))}</li>\n"
        for finding, sentence in summary(found)
    )
    return Part("", {}, f'<h2>Findings</h2>\n<ul class="findings">\n{items}</ul>\n')


@part_of.register
def who_attends(answer: WhoAttends) -> Part:
    """Every head's weight, the largest first, what zeroing it does, and how the numbers came about."""
    _, _, *columns = answer.columns
    rows = [(f"layer {layer} head {head}", *cells) for layer, head, *cells in answer.cells()]
    return Part("", {}, f"{table(answer.title, ['head', *columns], rows)}<p>{escape(answer.note)}</p>\n")


@part_of.register
def prose(text: str) -> Part:
    """Paragraphs, which blank lines part; one that begins with "# " is a heading."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    said = (f"<h2>{escape(each[2:])}</h2>\n" if each.startswith("# ") else f"<p>{escape(each)}</p>\n" for each in paragraphs)
    return Part("", {}, "".join(said))
