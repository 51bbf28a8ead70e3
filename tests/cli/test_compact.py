"""``ctxarchive compact``: its JSON, its options, its files, and several logs at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS = ("constraint", "finding", "narrative")
WINDOW = ("--window", "4000")


def test_the_json_of_a_log_is_the_public_interface(compacted: Any) -> None:
    """Every key that the interface names, with its type."""
    report = compacted.report
    assert list(report)[:4] == ["session", "format", "log", "archive"]
    assert report["session"].startswith("talk-1~")
    assert report["format"] == "claude-code"
    assert report["log"] == str(compacted.log)
    assert report["archive"] == str(compacted.archive)
    assert report["window"] == 4_000
    for key in ("events", "tokens_before", "tokens_after"):
        assert isinstance(report[key], int), key
    assert 0 < report["tokens_after"] < report["tokens_before"]
    assert report["warnings"] == []
    assert len(report["compactions"]) == 1
    assert list(report["compactions"][0]) == [
        "index",
        "compaction_id",
        "trigger",
        "shadowed_seqs",
        "shadowed_tokens",
        "checkpoint_seq",
        "checkpoint_tokens",
        "checkpoint",
        "summary",
        "archived",
        "pointers",
        "seconds",
        "summarizer",
    ]


def test_a_compaction_says_what_it_took_and_what_it_left(compacted: Any) -> None:
    """Numbers, texts, counts by layer, and times."""
    made = compacted.report["compactions"][0]
    assert made["index"] == 0
    assert made["trigger"] == "pressure"
    assert made["compaction_id"]
    assert made["shadowed_seqs"] == sorted(made["shadowed_seqs"])
    assert made["checkpoint_seq"] > made["shadowed_seqs"][-1]
    assert 0 < made["checkpoint_tokens"] < made["shadowed_tokens"]
    assert made["summary"] in made["checkpoint"]
    assert "## Conversation Transcript" in made["checkpoint"]
    assert "## Conversation Transcript" not in made["summary"]
    assert list(made["archived"]) == [*LAYERS, "already"]
    filed = sum(made["archived"][layer] for layer in LAYERS)
    assert filed == len(made["shadowed_seqs"])
    assert list(made["seconds"]) == ["file", "summarize", "build", "total"]
    parts = [made["seconds"][name] for name in ("file", "summarize", "build")]
    assert all(isinstance(value, float) and value > 0 for value in parts)
    assert sum(parts) <= made["seconds"]["total"]


def test_every_pointer_has_one_of_two_forms(compacted: Any, inside: Callable[..., Any]) -> None:
    """A part of one record, or whole records between two seqs; sources are labels."""
    pointers = compacted.report["compactions"][0]["pointers"]
    assert pointers
    for pointer in pointers:
        sources = pointer["source"]
        sources = sources if isinstance(sources, list) else [sources]
        assert all(source.startswith(f"session/{compacted.session}/") for source in sources)
        rest = {key: value for key, value in pointer.items() if key != "source"}
        assert set(rest) in ({"seq", "offset", "length"}, {"after_seq", "before_seq"})
        assert all(isinstance(value, int) for value in rest.values())
        if "seq" in rest:
            shown = inside("show", compacted.archive, compacted.session, rest["seq"], "--json").json
            assert rest["offset"] + rest["length"] <= shown["chars"]


def test_a_log_that_never_fills_its_window_is_left_alone(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """The window is the log's own model's where nobody says another, and is printed."""
    log = write_log()
    ran = inside("compact", log, "--archive", tmp_path / "a.db", "--json")
    assert ran.code == 0
    assert ran.json["window"] == 200_000
    assert ran.json["compactions"] == []
    assert ran.json["tokens_before"] == ran.json["tokens_after"]
    shown = inside("compact", log, "--archive", tmp_path / "a.db")
    assert "window 200,000 tokens" in shown.out.decode()


def test_people_read_a_table(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Without --json: the window, the context before and after, and a row a compaction."""
    log = write_log(name="[bold]:bug: [x] talk.jsonl")
    ran = inside("compact", log, "--archive", tmp_path / "a.db", *WINDOW)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.decode().splitlines()
    assert lines[0].startswith("[bold]:bug: [x] talk.jsonl  claude-code, session talk-1~")
    assert lines[1].startswith("window 4,000 tokens; context ")
    assert lines[1].endswith("1 compactions")
    assert " ".join(lines[2].split()) == "# shadowed checkpoint filed already pointers ms"


def test_a_log_compacted_twice_into_one_archive_is_there_already(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """The same settings give the same session, byte for byte, and nothing is filed twice."""
    log, archive = write_log(), tmp_path / "a.db"
    arguments = ("compact", log, "--archive", archive, *WINDOW, "--json")
    first, second = inside(*arguments).json, inside(*arguments).json
    (made,), (again,) = first["compactions"], second["compactions"]
    filed = sum(made["archived"][layer] for layer in LAYERS)
    assert made["archived"]["already"] == 0
    assert again["archived"] == {**dict.fromkeys(LAYERS, 0), "already": filed}
    times = {"seconds", "archived"}
    assert {key: made[key] for key in set(made) - times} == {
        key: again[key] for key in set(again) - times
    }
    assert inside("stats", archive, "--json").json["records"] == filed
    assert inside("verify", archive).code == 0


def test_a_replay_depends_on_nothing_that_another_filed(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Many compactions, run again over an archive that holds later events already."""
    made = talk()
    made.turns(60)
    log, archive = write_log(made), tmp_path / "a.db"
    arguments = ("compact", log, "--archive", archive, *WINDOW, "--json")
    first, second = inside(*arguments), inside(*arguments)
    assert (first.code, second.code, second.err) == (0, 0, "")
    assert second.json["warnings"] == []
    checkpoints = [made["checkpoint"] for made in first.json["compactions"]]
    assert len(checkpoints) > 3
    assert [made["checkpoint"] for made in second.json["compactions"]] == checkpoints
    assert inside("verify", archive, "--log", log).code == 0


def test_other_settings_file_under_another_session(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Compactions shift seqs, so two replays must not meet under one id."""
    log, archive = write_log(), tmp_path / "a.db"
    first = inside("compact", log, "--archive", archive, *WINDOW, "--json").json
    second = inside("compact", log, "--archive", archive, "--at", "end", "--json").json
    assert first["session"] != second["session"]
    assert second["warnings"] == []
    assert len(inside("sessions", archive, "--json").json["sessions"]) == 2
    assert inside("verify", archive, "--log", log).code == 0


def test_at_recorded_compacts_where_the_log_did(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """One for one, over the surface it had, with the log's own summary where asked."""
    arguments = ("compact", write_log(), "--archive", tmp_path / "a.db", "--at", "recorded")
    own = inside(*arguments, "--summarizer", "recorded", "--json").json
    (made,) = own["compactions"]
    assert made["trigger"] == "recorded"
    assert made["summary"] == ("This session is being continued. Summary: parts 0 to 40 were read.")
    assert len(made["shadowed_seqs"]) == 12 * 4
    extracted = inside(*arguments, "--json").json
    assert extracted["compactions"][0]["shadowed_seqs"] == made["shadowed_seqs"]
    assert extracted["compactions"][0]["summary"].startswith("## Request and how it changed")


def test_at_end_compacts_once_all_but_the_newest_unit(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """As an explicit compaction after the last turn would."""
    arguments = ("--archive", tmp_path / "a.db", "--at", "end", "--json")
    ran = inside("compact", write_log(), *arguments).json
    (made,) = ran["compactions"]
    assert made["trigger"] == "end"
    assert len(made["shadowed_seqs"]) == 18 * 4 - 1
    assert made["checkpoint_tokens"] < ran["tokens_after"]


def test_the_basic_backend_files_nothing_and_points_nowhere(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path, env: dict[str, str]
) -> None:
    """Only the summary is left, and no archive is made, named or not."""
    arguments = ("--backend", "basic", *WINDOW, "--json")
    ran = inside("compact", write_log(), "--archive", tmp_path / "a.db", *arguments)
    (made,) = ran.json["compactions"]
    assert ran.json["archive"] is None
    assert made["pointers"] == []
    assert set(made["archived"].values()) == {0}
    assert made["checkpoint"].endswith("\n</summary>")
    assert "ctx_search" not in made["checkpoint"]
    assert not (tmp_path / "a.db").exists()
    assert not Path(env["XDG_DATA_HOME"]).exists()


def test_without_a_name_the_archive_is_in_the_data_folder(
    cli: Callable[..., Any], write_log: Callable[..., Path], env: dict[str, str]
) -> None:
    """It is made there, and where it is is said on stderr."""
    ran = cli("compact", write_log(), *WINDOW, "--json")
    archive = Path(env["XDG_DATA_HOME"]) / "ctxarchive" / "archive.db"
    assert ran.code == 0
    assert ran.err == f"ctxarchive: archive: {archive}\n"
    assert ran.json["archive"] == str(archive)
    assert cli("sessions", archive, "--json").json["sessions"][0]["session"].startswith("talk-1~")


def test_additions_can_be_bounded(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """--max-addition-chars holds for everything behind the summary; 0 leaves the plain summary."""
    arguments = ("compact", write_log(), "--archive", tmp_path / "a.db", *WINDOW, "--json")
    for most in (900, 0):
        (made,) = inside(*arguments, "--max-addition-chars", most).json["compactions"]
        _, _, additions = made["checkpoint"].partition(made["summary"] + "\n</summary>")
        assert len(additions.removeprefix("\n\n")) <= most
        assert bool(additions) == bool(most)


def test_a_config_file_is_obeyed_and_the_command_line_wins(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Options stand above the file."""
    config = tmp_path / "ctxarchive.toml"
    config.write_text('backend = "basic"\nestimator = "characters"\n', "utf-8")
    log, archive = write_log(), tmp_path / "a.db"
    arguments = ("compact", log, "--archive", archive, *WINDOW, "--config", config, "--json")
    plain = inside(*arguments).json
    assert plain["archive"] is None
    assert inside(*arguments, "--backend", "archive").json["archive"] == str(archive)
    counted = inside("compact", log, "--archive", archive, *WINDOW, "--json").json
    assert counted["tokens_before"] != plain["tokens_before"]


def test_out_holds_each_checkpoint_and_the_session(
    compacted: Any, inside: Callable[..., Any], tmp_path: Path
) -> None:
    """Markdown is the text that the model sees; the JSONL is a session that verifies and reads."""
    (made,) = compacted.report["compactions"]
    (page,) = compacted.out.glob("*.md")
    assert page.read_bytes().decode("utf-8") == made["checkpoint"]
    lines = [json.loads(line) for line in compacted.stored.read_bytes().splitlines()]
    assert len(lines) == compacted.report["events"] + 1
    assert lines[0]["id"] == compacted.session
    checkpoint = next(e for e in lines[1:] if e["seq"] == made["checkpoint_seq"])
    assert checkpoint["type"] == "user/message"
    assert inside("verify", compacted.archive, "--log", compacted.stored).code == 0
    again = inside("compact", compacted.stored, "--archive", tmp_path / "b.db", "--json")
    assert (again.code, again.err) == (0, "")


def test_one_bad_log_of_several_does_not_stop_the_others(
    cli: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """The others are shown, one object a line; the bad ones are named; the exit code is 1."""
    good, other = write_log(), write_log(talk("talk-2", usual=True), "other.jsonl")
    missing, cut = tmp_path / "missing.jsonl", tmp_path / "cut.jsonl"
    cut.write_bytes(good.read_bytes()[:-40])
    ran = cli(
        "compact", missing, good, cut, other, "--archive", tmp_path / "a.db", *WINDOW, "--json"
    )
    assert ran.code == 1
    assert [report["session"].partition("~")[0] for report in ran.lines] == ["talk-1", "talk-2"]
    told = ran.err.splitlines()
    assert len(told) == 2
    assert told[0].startswith(f"ctxarchive: {missing}: no such file")
    assert told[1].startswith(f"ctxarchive: {cut} line ")


def test_a_span_that_could_not_be_filed_is_told_and_fails(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Other content under the same session and seq: the checkpoint is plain, and nobody is fooled."""
    archive = tmp_path / "a.db"
    changed = talk("talk-1")
    changed.user("Quite another beginning.")
    changed.records += talk("talk-1", usual=True).records[1:]
    log, other = write_log(), write_log(changed, "other.jsonl")
    assert inside("compact", log, "--archive", archive, *WINDOW).code == 0
    ran = inside("compact", other, "--archive", archive, *WINDOW, "--json")
    assert ran.code == 1
    (told,) = ran.err.splitlines()
    assert told.startswith(f"ctxarchive: {other}: a checkpoint is the plain summary")
    (made,) = ran.json["compactions"]
    assert made["pointers"] == []
    assert ran.json["warnings"]
    assert inside("verify", archive, "--log", log).code == 0


def test_what_is_printed_is_json_in_utf8_whatever_the_log_says(
    cli: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Lone surrogates, NUL, line separators and emoji in a user's message; one line an object."""
    odd = "caf\u00e9 \ud800 \x00 \u2028 \u0085 👩‍👩‍👧 漢字\r\n" * 4
    made = talk("talk-1", usual=True)
    made.user(odd)
    made.assistant({"type": "text", "text": "Noted."})
    ran = cli("compact", write_log(made), "--archive", tmp_path / "a.db", "--at", "end", "--json")
    assert ran.out.decode("utf-8").count("\n") == 1
    assert odd in ran.json["compactions"][0]["checkpoint"]


def test_any_setting_can_be_given_on_the_command_line(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """--set goes over the file's value, in the file's own names; what is wrong is named."""
    config = tmp_path / "c.toml"
    config.write_text("[transcript]\ntool_essence = 5\n", "utf-8")
    log, archive = write_log(), tmp_path / "a.db"
    arguments = ("compact", log, "--archive", archive, *WINDOW, "--json", "--config", config)
    plain, same = inside(*arguments).json, inside(*arguments, "--set", "transcript.tool_essence=5")
    assert same.json["session"] == plain["session"], "the same settings, by whichever way"
    wider = inside(*arguments, "--set", "transcript.tool_essence=50").json
    assert wider["session"] != plain["session"]
    bare = inside(*arguments, "--set", "backend=basic").json
    assert bare["archive"] is None
    for wrong, said in (
        ("transcript.nothing=1", "transcript.nothing: unknown key"),
        ("transcript.user_clip_at=none", "transcript.user_clip_at"),
        ("backend.x=1", "backend is no section"),
        ("nonsense", "write it as KEY=VALUE"),
    ):
        ran = inside(*arguments, "--set", wrong)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert said in ran.err
