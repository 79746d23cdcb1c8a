"""Pictures: what is in them, whatever a name holds."""

from xml.etree import ElementTree

from compliance.report import pictures
from compliance.report.pictures import Bar, Picture


def root_of(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg)


def texts(picture: Picture) -> set[str]:
    return {"".join(one.itertext()).strip() for one in root_of(picture).iter() if one.tag.endswith("text")}


def test_the_same_picture_has_the_same_bytes() -> None:
    bars = [Bar("a", 1.5, True), Bar("b", 2e6, False)]
    assert pictures.side_by_side("t", bars) == pictures.side_by_side("t", bars)


def test_a_name_is_text_whatever_it_holds() -> None:
    odd = pictures.side_by_side("Tokens/s", [Bar("$a$ <b>&\x1b", 564_400.0, True), Bar("y" * 80, 3, False)])
    assert {"$a$ <b>&\\x1b", "564,400"} <= texts(odd)
    assert "y" * 11 + "…" + "y" * 12 in texts(odd)


def test_replicas() -> None:
    even = pictures.replicas({0: 1000, 1: 1000})
    assert even.words == "Output tokens of 2 replicas; the busiest has 1.000 of the mean"
    assert {"0", "1"} <= texts(even)
    many = pictures.replicas({n: n for n in range(64)})
    assert "1.969 of the mean" not in even.words
    assert "2.000 of the mean" in many.words


def test_legs_of_a_campaign_are_told_apart() -> None:
    legs = [f"llama3.1-8b/{name}" for name in ("Offline/performance/run_1", "Offline/audit/TEST06/performance",
                                              "Server/audit/TEST06/performance", "Server/x")]  # fmt: skip
    names = pictures.told_apart(legs)
    assert names == ["Offline/per…rmance/run_1", "Offline/aud…/performance", "Server/audi…/performance", "Server/x"]
    assert pictures.told_apart(["one"]) == ["one"]
    assert pictures.told_apart(["a/one", "b"]) == ["a/one", "b"]


def test_numbers_of_an_axis_do_not_touch() -> None:
    drawn = pictures.side_by_side("Tokens/s", [Bar("one", 120_628, True), Bar("two", 168_150, True)])
    assert sum(text.endswith("000") for text in texts(drawn)) <= 3
