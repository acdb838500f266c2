"""Chinese dialogues of two cities or three: what somebody likes where and when, a question about one season, its answer.

    我喜欢北京的春天和上海的秋天。春天我该去哪里？   I like Beijing's spring and Shanghai's autumn. Where do I go in spring?
    春天你该去北京。                                In spring you should go to Beijing.

Some pairs of a city and a season are held out: in training the two never meet in one dialogue, and every held-out dialogue
asks for such a pair. Whoever has learnt by heart which city goes with which season gets those wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from npformer.operation import Array
from npformer.text import CharacterTokenizer

SEASONS = ("春天", "夏天", "秋天", "冬天")
CITIES = (
    *("北京", "上海", "广州", "成都", "杭州", "西安", "南京", "武汉", "重庆", "天津", "苏州", "青岛", "厦门", "大连"),
    *("昆明", "长沙", "桂林", "深圳", "宁波", "拉萨", "三亚", "洛阳", "丽江", "大理", "福州", "济南", "兰州", "哈尔滨"),
)
HELD_OUT = frozenset((city, SEASONS[i % len(SEASONS)]) for i, city in enumerate(CITIES[::3]))

# A with a is one pair of a city and a season, B with b the next, C with c the third.
STATEMENTS = (
    "我喜欢{A}的{a}和{B}的{b}。",
    "我想念{A}的{a}和{B}的{b}。",
    "我喜欢{A}的{a}，也喜欢{B}的{b}。",
    "我忘不了{A}的{a}，也忘不了{B}的{b}。",
    "我想看{A}的{a}，也想看{B}的{b}。",
    "朋友说{A}的{a}好，我说{B}的{b}也好。",
    "{A}的{a}真美，{B}的{b}也很美。",
    "{A}{a}最美，{B}{b}也很美。",
    "我爱{A}的{a}，也爱{B}的{b}，还爱{C}的{c}。",
    "我喜欢{A}的{a}、{B}的{b}和{C}的{c}。",
    "我喜欢{A}的{a}，也喜欢{b}的{B}。",
    "我喜欢{a}的{A}，也喜欢{B}的{b}。",
    "朋友说{A}的{a}好，我说{b}的{B}也好。",
    "我喜欢{a}的{A}和{b}的{B}。",
    "{a}的{A}真美，{b}的{B}也很美。",
    "我{a}想去{A}，可是{b}想去{B}。",
)
# The answer's words follow from the question's, so that there is one right answer.
QUESTIONS = (
    ("{season}我该去哪里？", "{season}你该去{city}。"),
    ("我{season}该去哪里？", "你{season}该去{city}。"),
    ("{season}去哪里好？", "{season}去{city}好。"),
    ("{season}我去哪里呢？", "{season}你去{city}吧。"),
    ("到了{season}我去哪里？", "到了{season}你去{city}。"),
    ("{season}的车票买到哪里？", "{season}的车票买到{city}。"),
)

ALPHABET = "".join(
    sorted(
        character
        for character in set("".join([*SEASONS, *CITIES, *STATEMENTS, *sum(QUESTIONS, ())]))
        if not character.isascii()  # as the blanks for words are
    )
)
TOKENIZER = CharacterTokenizer(ALPHABET)
BEGIN = TOKENIZER.vocab_size
END = BEGIN + 1
VOCAB_SIZE = END + 1


@dataclass(frozen=True)
class Dialogue:
    """A statement, a question about it and the answer, with the words on which they turn."""

    statement: str
    question: str
    target: str
    asked: str  # the season that the question names
    answer: str  # the city that stands with it in the statement
    others: tuple[str, ...]  # the statement's other cities, in its order

    @property
    def source(self) -> str:
        return self.statement + self.question

    def places(self, word: str) -> range:
        """Where the characters of one of the cities or seasons stand in the statement, and so in the source."""
        return places(self.statement, word)

    @property
    def answer_places(self) -> range:
        """Where the characters of the answer's city stand in the target.

        A decoder reads BEGIN before the target, so it chooses character i of the target at its own position i.
        """
        return places(self.target, self.answer)


def places(text: str, word: str) -> range:
    start = text.index(word)
    return range(start, start + len(word))


def compose(statement: str, question: tuple[str, str], pairs: Sequence[tuple[str, str]], asked: int) -> Dialogue:
    """One of STATEMENTS about such pairs (city, season), as many as it has blanks for, and one of QUESTIONS about pair
    number `asked`."""
    words: dict[str, str] = {}
    for letter, (city, season) in zip("abc", pairs, strict=False):
        words |= {letter.upper(): city, letter: season}
    city, season = pairs[asked]
    asking, answering = (text.format(city=city, season=season) for text in question)
    others = tuple(other for other, _ in pairs if other != city)
    return Dialogue(statement.format(**words), asking, answering, season, city, others)


STORY = compose(STATEMENTS[0], QUESTIONS[0], [("北京", "春天"), ("上海", "秋天")], 0)  # 北京 and 春天 are held out


def dialogues(n: int, rng: np.random.Generator, held_out: bool = False) -> list[Dialogue]:
    """n dialogues, drawn with replacement: for training, or those that ask for a pair of HELD_OUT, with any other pairs.

    In training such a city and season do not even stand in two pairs of one statement: the question would then ask for
    the season and the city would never be the answer, from which a model learns to avoid what it is tested on.
    """
    return [random_dialogue(rng, held_out) for _ in range(n)]


def random_dialogue(rng: np.random.Generator, held_out: bool) -> Dialogue:
    statement = STATEMENTS[rng.integers(len(STATEMENTS))]
    question = QUESTIONS[rng.integers(len(QUESTIONS))]
    n_pairs = sum(letter in statement for letter in "ABC")
    asked = int(rng.integers(n_pairs))
    while True:
        cities, seasons = (rng.permutation(words)[:n_pairs].tolist() for words in (CITIES, SEASONS))
        pairs = list(zip(cities, seasons, strict=True))
        if pairs[asked] in HELD_OUT if held_out else HELD_OUT.isdisjoint(product(cities, seasons)):
            return compose(statement, question, pairs, asked)


def encode_sources(sources: Sequence[str]) -> tuple[Array, Array]:
    """B texts → ids and keep, both (B,S), S characters of the longest. ValueError for a character outside ALPHABET."""
    return padded([TOKENIZER.encode(source) for source in sources])


def encode_targets(targets: Sequence[str]) -> tuple[Array, Array]:
    """B texts → ids and keep, both (B,T), each text between BEGIN and END. ValueError for a character outside ALPHABET."""
    return padded([np.concatenate([[BEGIN], TOKENIZER.encode(target), [END]]) for target in targets])


def encode(dialogues: Sequence[Dialogue]) -> tuple[Array, Array, Array, Array]:
    """source, source_keep, target and target_keep of B dialogues."""
    return *encode_sources([each.source for each in dialogues]), *encode_targets([each.target for each in dialogues])


def padded(rows: Sequence[Array]) -> tuple[Array, Array]:
    """Rows of ids → ids (B,T) int64, with 0 behind a row's end, and keep (B,T), True before it."""
    lengths = np.array([len(row) for row in rows])
    keep = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(keep.shape, np.int64)
    ids[keep] = np.concatenate(rows)
    return ids, keep


def decode(ids: Array) -> str:
    """The text of what a decoder wrote, ids (T,): without BEGIN in front, and up to END where there is one. BEGIN anywhere
    else, which only a decoder writes that has not learnt much, is shown as |."""
    ids = ids[1:] if len(ids) and ids[0] == BEGIN else ids
    ends = np.flatnonzero(ids == END)
    ids = ids[: ends[0]] if len(ends) else ids
    return "|".join(TOKENIZER.decode(part[part != BEGIN]) for part in np.split(ids, np.flatnonzero(ids == BEGIN)))
