"""JUnit's XML as CI systems read it: structure, counts, and texts that XML cannot hold."""

import xml.etree.ElementTree as ET  # what is parsed is our own
from collections import Counter

import pytest
from report_records import HOSTILE, hostile, report_of, some

from converter.reports import catalog

# Of Jenkins's schema (junit-10.xsd): which elements and attributes there are, and what is required.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
}
ATTRIBUTES = {
    "testsuites": ({"name", "tests", "failures", "errors", "time"}, set()),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
        {"name"},
    ),
    "testcase": ({"name", "classname", "time"}, {"name"}),
    "property": ({"name", "value"}, {"name", "value"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
}


@pytest.fixture
def root(tmp_path):
    return written(tmp_path, some())


def written(folder, records, title="/registry"):
    path = folder / "junit.xml"
    catalog.write(report_of(records, title), path)
    root = ET.parse(path).getroot()
    check(root)
    return root


def check(element):
    allowed, required = ATTRIBUTES.get(element.tag, (set(), set()))
    assert required <= set(element.attrib) <= allowed, element.tag
    assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for child in element:
        check(child)


def test_each_artifact_is_a_test_and_each_format_a_suite(root):
    assert root.tag == "testsuites"
    tests = {test.get("name"): test for test in root.iter("testcase")}
    assert [*sorted(tests)] == [record["name"] for record in some()]
    formats = Counter(record["format"] or "unknown" for record in some())
    assert {s.get("name"): int(s.get("tests")) for s in root} == {
        f"convert {name}": n for name, n in formats.items()
    }
    assert all(
        t.get("classname") == s.get("name").replace(" ", ".")
        for s in root
        for t in s.iter("testcase")
    )


def test_the_artifacts_fault_is_a_failure_and_any_other_an_error(root):
    verdicts = {
        test.get("name").removesuffix(".portable"): [
            e.tag for e in test if e.tag in ("failure", "error", "skipped")
        ]
        for test in root.iter("testcase")
    }
    assert verdicts == {
        "plain.pt": [], "copy.pt": [], "graph.h5": [], "heads": [],
        "differs.h5": ["failure"], "damaged.h5": ["failure"], "blocked.pb": ["failure"],
        "blocked2.pb": ["failure"], "evil.pkl": ["failure"],
        "far.pt": ["error"], "crash.pt": ["error"], "lost.h5": ["error"], "bug.pt": ["error"],
        "waiting.pt": ["skipped"],
    }  # fmt: skip


def test_counts_are_those_of_the_tests(root):
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        for kind, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.get(key)) == len(suite.findall(f"testcase/{kind}"))
        times = sum(float(test.get("time")) for test in suite.findall("testcase"))
        assert float(suite.get("time")) == pytest.approx(times, abs=0.002)
    assert int(root.get("tests")) == len(some())
    assert int(root.get("failures")) == 5
    assert int(root.get("errors")) == 4


def test_the_evidence_is_the_output_and_the_request_the_properties(root):
    tests = {test.get("name"): test for test in root.iter("testcase")}
    shown = tests["graph.h5.portable"].findtext("system-out")
    for part in (
        "made by     keras 2.3.1",
        "output_1: max abs",
        "verified    cpu",
        "read        zip",
    ):
        assert part in shown
    failure = tests["blocked.pb.portable"].find("failure")
    assert failure.get("message").startswith("exit 4, not supported: ")
    assert failure.get("type") == "SourceError"
    assert failure.text == "/registry/blocked.pb: 2 gaps: op ParseExample; op Svd"
    gap = "unsupported TensorFlow op Svd, 3 times"
    assert gap in tests["blocked.pb.portable"].findtext("system-out")
    found = {p.get("name"): p.get("value") for p in root[0].iter("property")}
    assert found["to"] == "portable"
    assert found["destination"] == "/out"


def test_no_text_breaks_it(tmp_path):
    root = written(tmp_path, hostile(), "".join(HOSTILE))
    suites = [suite.get("name").removeprefix("convert ") for suite in root]
    assert len(suites) == len(HOSTILE)
    assert "</script><script>document.title='owned'</script>" in suites
    assert r"controls \x00 \x07 \x1b[31mred\x1b[0m" in suites[4]
    assert r"surrogate \udcff and \ud800" in suites[6]
    assert r"\ufffe \uffff" in suites[7]
    texts = [test.findtext("failure") for test in root.iter("testcase")]
    assert all(text.startswith(("/registry/", r"\x")) for text in texts)
