"""What a wrong gradient is instead, in sentences that were verified.

Most hypotheses say what would make the returned gradient the true one: turn its sign, transpose it, subtract the mean of
every row. Whether that holds can be asked along directions as well as entry by entry. Others say what the returned gradient
was made of. A sentence is said only where the numbers bear it out within the bars, in all entries and for all cotangents; of
the hypotheses that hold, the first in HYPOTHESES is the one that is said.
"""

from gradcheck.diagnosis.sentences import diagnosis_of

__all__ = ["diagnosis_of"]
