"""`twinlog.transforms`: the accepted settings, and errors with their line."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError

import pytest

from tests.support.properties import Loader, flow_of, refusal
from twinlog.config.advice.explanation import explain
from twinlog.config.advice.transforms import refuse_transforms
from twinlog.config.effective import digests
from twinlog.config.flow.transforms import OnError
from twinlog.errors import ConfigError
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.naming import DefaultReplicationPolicy, dead_letter_topic, is_own_topic

MASK = (
    "A->B.twinlog.transforms = mask, cut",
    "A->B.twinlog.transforms.mask.topics = orders, pay.*",
    "A->B.twinlog.transforms.mask.function = company.privacy:mask_cards",
    "A->B.twinlog.transforms.cut.topics = clicks, pay-eu",
    "A->B.twinlog.transforms.cut.sql = SELECT * FROM records WHERE value IS NOT NULL",
)
SQL = "A->B.twinlog.transforms.cut.sql = SELECT * FROM records"
TOPICS = "A->B.twinlog.transforms.cut.topics = clicks"
CUT = "A->B.twinlog.transforms = cut"


def test_transforms_are_read_in_the_order_of_the_list(read: Loader) -> None:
    found = flow_of(read(*MASK, "A->B.twinlog.transforms.on-error = quarantine")).transforms
    mask, cut = found.entries
    assert (mask.name, mask.function, mask.sql) == ("mask", "company.privacy:mask_cards", "")
    assert (cut.name, cut.function) == ("cut", "")
    assert cut.sql == "SELECT * FROM records WHERE value IS NOT NULL"
    assert found.on_error is OnError.QUARANTINE
    names = {
        topic: [one.name for one in found.of_topic(topic)]
        for topic in ("orders", "pay-eu", "clicks", "other")
    }
    assert names == {"orders": ["mask"], "pay-eu": ["mask", "cut"], "clicks": ["cut"], "other": []}
    with pytest.raises(FrozenInstanceError):
        mask.name = "other"  # type: ignore[misc]


def test_without_transforms_there_are_none(read: Loader) -> None:
    found = flow_of(read()).transforms
    assert (found.entries, found.on_error) == ((), OnError.STOP)


def test_lines_without_a_flow_are_those_of_every_flow(read: Loader) -> None:
    lines = [line.removeprefix("A->B.") for line in MASK]
    config = read(*lines)
    assert [one.name for one in flow_of(config).transforms.entries] == ["mask", "cut"]
    assert config.warnings == ()


def test_each_line_is_explained(read: Loader) -> None:
    said = {one.line: one.meaning for one in explain(flow_of(read(*MASK))).keys if one.line}
    assert said[6] == "a transform: source topics whose records it changes"
    assert said[9].startswith("a transform: a query of the view `records`")


def test_a_changed_query_is_a_change_of_the_flow(read: Loader) -> None:
    before, after = (
        digests(flow_of(read(CUT, TOPICS, query))) for query in (SQL, f"{SQL} WHERE key IS NULL")
    )
    assert before != after


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((CUT, TOPICS), "5: A->B.twinlog.transforms: cut has neither a function nor a query; add "),
        ((CUT, SQL), "5: A->B.twinlog.transforms: cut has no topics; add "),
        (
            (CUT, SQL, "A->B.twinlog.transforms.cut.topics ="),
            "7: A->B.twinlog.transforms.cut.topics: cut has no topics; write ",
        ),
        (
            (CUT, TOPICS, SQL, "A->B.twinlog.transforms.cut.function = a:b"),
            "7: A->B.twinlog.transforms.cut.sql: cut has a function already (",
        ),
        (
            (CUT, TOPICS, "A->B.twinlog.transforms.cut.function = company/privacy.py"),
            '7: A->B.twinlog.transforms.cut.function: "company/privacy.py" does not name a '
            "function of a module; write package.module:function",
        ),
        (
            (CUT, TOPICS, "A->B.twinlog.transforms.cut.sql = INSERT INTO x SELECT * FROM records"),
            '7: A->B.twinlog.transforms.cut.sql: "INSERT INTO x SELECT * FROM records" is not a '
            "SELECT; write SELECT ... FROM records",
        ),
        (
            (CUT, SQL, "A->B.twinlog.transforms.cut.topics = pay.(*"),
            "7: A->B.twinlog.transforms.cut.topics: ",
        ),
        (
            (CUT, TOPICS, "A->B.twinlog.transforms.cut.sqll = SELECT 1"),
            "7: A->B.twinlog.transforms.cut.sqll: no such key; did you mean "
            "A->B.twinlog.transforms.cut.sql?",
        ),
        (
            ("A->B.twinlog.transforms.on-eror = skip",),
            "5: A->B.twinlog.transforms.on-eror: no such key; did you mean "
            "A->B.twinlog.transforms.on-error?",
        ),
        (
            ("A->B.twinlog.transforms.on-error = ignore",),
            '5: A->B.twinlog.transforms.on-error: "ignore" is not a valid value; write stop or '
            "skip or quarantine",
        ),
        *(
            (
                (f"A->B.twinlog.transforms.quarantine.topic = {name}",),
                f'5: A->B.twinlog.transforms.quarantine.topic: "{name}" may be mirrored by another '
                "flow, or is not the name of a topic; write a name that begins with __",
            )
            for name in ("orders-letters", "__a b", "__consumer_offsets")
        ),
        (
            (*MASK, "A->B.twinlog.transforms.maks.topics = x"),
            "10: A->B.twinlog.transforms.maks.topics: twinlog.transforms does not list maks, so it "
            "would change no record; did you mean mask?",
        ),
        (
            (TOPICS,),
            "5: A->B.twinlog.transforms.cut.topics: twinlog.transforms does not list cut, so it "
            "would change no record; add cut to twinlog.transforms, or remove the line",
        ),
        (
            ("A->B.twinlog.transforms = cut, cut", TOPICS, SQL),
            "5: A->B.twinlog.transforms: 'cut' is listed twice; write names",
        ),
        (
            ("A->B.twinlog.transforms = company.privacy:mask",),
            "5: A->B.twinlog.transforms: 'company.privacy:mask' is not a name; write names",
        ),
        (
            ("B.twinlog.transforms.cut.topics = clicks",),
            "5: B.twinlog.transforms.cut.topics: is a setting of a flow, not of a cluster; write ",
        ),
    ],
)
def test_settings_without_effect_are_refused(
    read: Loader, lines: tuple[str, ...], said: str
) -> None:
    assert refusal(lambda: read(*lines)).startswith(f"mm2.properties:{said}")


def test_an_invalid_line_is_the_only_error(read: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        read(CUT, SQL, "A->B.twinlog.transforms.cut.topics = pay.(*")
    assert (caught.value.code, caught.value.more) == ("REGEX_INVALID", ())


def test_a_mirror_refuses_transforms_that_it_cannot_run(read: Loader) -> None:
    kept = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    config = read(*MASK, kept)
    with pytest.raises(ConfigError) as caught:
        refuse_transforms(config)
    assert (caught.value.code, caught.value.exit_code) == ("TRANSFORMS_NOT_RUN", 2)
    assert caught.value.line == 5
    assert caught.value.what.startswith(
        "a mirror transforms only topics to which no other client writes, but the "
    )
    assert caught.value.what.endswith(
        "; let a RegexRouter keep the names instead of the policy, so that the topics belong to "
        "this flow (docs/transforms.md#topics-that-keep-their-names)"
    )
    router = (
        "A->B.transforms = sameNames",
        "A->B.transforms.sameNames.type = org.apache.kafka.connect.transforms.RegexRouter",
        r"A->B.transforms.sameNames.regex = A\\.(.*)",
        "A->B.transforms.sameNames.replacement = $1",
    )
    followed = read(*MASK, *router)
    assert refuse_transforms(followed) is followed
    assert policy_of(flow_of(followed)).format_remote_topic("A", "orders") == "orders"


def test_a_flow_with_transforms_places_no_records_by_key(read: Loader) -> None:
    keyed = "twinlog.target.partitions = all-keyed"
    with pytest.raises(ConfigError) as caught:
        refuse_transforms(read(*MASK, keyed))
    assert (caught.value.code, caught.value.line) == ("TRANSFORMS_NOT_RUN", 10)
    assert caught.value.what == (
        "a flow with transforms places no records by key, because they keep their partitions; "
        "remove the line, and place the records in a second flow (docs/transforms.md#new-keys)"
    )
    # accepted: `keyed`, because partition counts may be equal, and a flow without transforms
    for accepted in (read(*MASK, keyed.replace("all-", "")), read(keyed)):
        assert refuse_transforms(accepted) is accepted


def test_variables_of_the_environment_are_named(read: Loader) -> None:
    found = flow_of(read(*MASK, "A->B.twinlog.transforms.environment = KEY, SALT")).transforms
    assert found.environment == ("KEY", "SALT")
    assert found.digest == flow_of(read(*MASK)).transforms.digest


def test_topics_whose_transforms_were_removed(read: Loader) -> None:
    found = flow_of(read("A->B.twinlog.transforms.removed = orders, pay.*")).transforms
    assert [*map(found.removed.matches, ("orders", "pay-eu", "clicks"))] == [True, True, False]
    assert found.digest == flow_of(read()).transforms.digest == ""


@pytest.mark.parametrize("flow", ["A->b", "A->C"])
def test_a_mirror_refuses_transforms_of_a_flow_that_does_not_exist(read: Loader, flow: str) -> None:
    """The transform's lines name a misspelled flow, which usually causes only a warning. With
    transforms it is an error, because the records would be copied without being masked.
    """
    config = read(*(line.replace("A->B", flow) for line in MASK))
    assert flow_of(config).transforms.entries == ()
    with pytest.raises(ConfigError) as caught:
        refuse_transforms(config)
    assert [one.line for one in caught.value.each] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("lines", [MASK, ("A->B.twinlog.transforms = ",)])
def test_a_mirror_runs_other_transforms(read: Loader, lines: tuple[str, ...]) -> None:
    config = read(*lines, "A->B.twinlog.transforms.on-error = stop")
    assert refuse_transforms(config) is config
    assert config.warnings == ()


def test_digest_depends_on_the_lines_of_the_topics_transforms_alone(read: Loader) -> None:
    def digests_of(*lines: str) -> list[str]:
        found = flow_of(read(*lines)).transforms
        return [*map(found.digest_of, ("orders", "clicks", "other")), found.digest]

    assert digests_of() == ["", "", "", ""]
    orders, clicks, other, both = digests_of(*MASK)
    assert other == "" and len({orders, clicks, both}) == 3
    assert re.fullmatch("[0-9a-f]{32}", orders)
    changed = digests_of(*MASK[:-1], SQL)
    assert changed[0] == orders and changed[1] != clicks and changed[3] != both
    more_topics = digests_of(*(line.replace("clicks,", "clicks, taps,") for line in MASK))
    assert more_topics[:3] == [orders, clicks, ""] and more_topics[3] != both
    skipping = digests_of(*MASK, "A->B.twinlog.transforms.on-error = skip")
    assert skipping[0] != orders


def test_failed_records_go_to_a_topic_that_no_flow_mirrors(read: Loader) -> None:
    quarantine = "A->B.twinlog.transforms.on-error = quarantine"
    given = "A->B.twinlog.transforms.quarantine.topic = __letters"
    names = []
    for lines in ((), (quarantine,), (quarantine, given)):
        flow = flow_of(read(*MASK, *lines))
        names.append(dead_letter_topic(flow.flow, flow.transforms))
    assert names == ["", "mm2-twinlog-dead-letters.A.internal", "__letters"]
    policy = DefaultReplicationPolicy()
    assert is_own_topic(names[1]) and policy.is_internal_topic(names[2])
