"""Files that Datastream wrote, with the rows that they leave."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings

SAMPLES: Final = Path(__file__).parents[2] / "golden" / "datastream"


Events = Sequence[SourceEvent | FaultyEvent]


class Sample(NamedTuple):
    """Files of one source, and what some columns of the table's rows hold at the end, by key."""

    table: str
    files: tuple[str, ...]
    column: str
    expected: dict[str, Any]


PK_CHANGE: Final = tuple(
    f"mysql/PkChange/my_table-simpleTest-{name}.avro" for name in ("3-inserts", "update-delete", "pk-update")
)


EMPLOYEES: Final = "HR.EMPLOYEES"


SETTINGS: Final = DatastreamSettings(
    # Events of March 2021 do not state the key.
    "stream",
    keys={EMPLOYEES: ("EMPLOYEE_ID",)},
)


CASES: Final = {
    "key change": Sample("ea-main.my_table", PK_CHANGE, "val", {'{"id":10}': 10, '{"id":2}': 20}),
    "users": Sample(
        "l1.Users",
        ("mysql/EventsIT/mysql-backfill-Users.avro", "mysql/EventsIT/mysql-cdc-Users.avro"),
        "plan",
        {'{"id":1}': "A", '{"id":3}': "Z", '{"id":4}': "D"},
    ),
    "category": Sample(
        "l1.Category",
        ("mysql/SessionIT/mysql-backfill-Category.avro", "mysql/SessionIT/mysql-cdc-Category.avro"),
        "name",
        {'{"category_id":2}': "abc1", '{"category_id":3}': "def", '{"category_id":4}': "ghi"},
    ),
    "movies": Sample(
        "l1.Movie",
        ("mysql/EventsIT/mysql-backfill-Movie.avro",),  # the file's name notwithstanding, captured changes
        "actor",
        {
            '{"id":1}': "12345.098760000000000000000000000000",
            '{"id":2}': "931.512300000000000000000000000000",
        },
    ),
    "authors": Sample(
        "l1.Authors",
        ("mysql/EventsIT/mysql-Authors.avro",),
        "name",
        {f'{{"author_id":{n}}}': f"a{n}" for n in range(1, 5)},
    ),
    "books": Sample(
        "l1.Books",
        ("mysql/EventsIT/mysql-Books.avro",),
        "author_id",
        {'{"id":1}': 3, '{"id":2}': 3, '{"id":3}': 4, '{"id":4}': 2},
    ),
    "articles": Sample(
        "l1.Articles",
        ("mysql/EventsIT/mysql-Articles.avro",),
        "author_id",
        {'{"id":1}': 1, '{"id":2}': 1, '{"id":3}': 4, '{"id":4}': 3},
    ),
    "keyless books": Sample(
        "l1.Books",
        ("mysql/SessionIT/Books.avro",),
        "id",
        {f'{{"_event_id":"8098ec32-024a-49f9-a7e1-1261000000{n:02b}"}}': n + 1 for n in range(3)},
    ),
    "employee updated": Sample(
        EMPLOYEES, ("oracle/insert.avro", "oracle/update.avro"), "SALARY", {'{"EMPLOYEE_ID":210}': "8888.00"}
    ),
    "employee deleted": Sample(
        EMPLOYEES, ("oracle/insert.avro", "oracle/update.avro", "oracle/delete.avro"), "SALARY", {}
    ),
    "employee renumbered": Sample(
        EMPLOYEES, ("oracle/update-pk.avro",), "FIRST_NAME", {'{"EMPLOYEE_ID":211}': "Sean"}
    ),
    "job": Sample("HR.JOBS", ("json/oracle-backfill.jsonl",), "MIN_SALARY", {'{"JOB_ID":"PR_REP"}': 4500}),
    "run": Sample(
        "public.pipeline_run", ("json/postgresql-cdc-shape.jsonl",), "status", {'{"id":15204}': "COMPLETED"}
    ),
    "SQL Server": Sample(
        "dbo.EMPLOYEES", ("json/sqlserver-synthetic.jsonl",), "LAST_NAME", {'{"EMPLOYEE_ID":101}': "Doe"}
    ),
}


def interpreted(sample: Sample) -> Events:
    """Return what the events of a sample's files mean."""
    return [event for name in sample.files for event in decode_file(SETTINGS, (SAMPLES / name).read_bytes())]
