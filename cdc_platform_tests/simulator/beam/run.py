"""Beam's SpannerIO.readChangeStream reads the simulator; its metadata table lives on Google's emulator."""
import os, subprocess, sys, time, json
from collections import Counter
sys.path.insert(0, ".")
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.settings import *
from cdc_platform.model.base.timestamps import to_rfc3339, from_rfc3339
from cdc_platform.demo.emulator import Emulator, find_emulator
from cdc_platform_tests.simulator.truth import ReadChange, changes_until, object_text, assert_same_changes
import router, argparse
ap = argparse.ArgumentParser(); ap.add_argument("--lib", default="lib"); ap.add_argument("--dialect", default="GOOGLESQL"); ap.add_argument("--metadata-dialect", default="GOOGLESQL")
ap.add_argument("--set", action="append", default=[]); ap.add_argument("--out", default="out"); ap.add_argument("--timeout", type=int, default=500)
ap.add_argument("--patch-schemata", action="store_true")
ap.add_argument("--patch-nanos", action="store_true")
a = ap.parse_args()
if a.patch_schemata:
    from cdc_platform.simulator.sql import information
    old = information.Information._rows
    def rows(self, schema):
        yield from old(self, schema)
        for name in (["INFORMATION_SCHEMA", "SPANNER_SYS"] if self._is_googlesql else ["information_schema", "pg_catalog", "spanner_sys"]):
            yield "schemata", {"catalog_name": "", "schema_name": name}
    information.Information._rows = rows
if a.patch_nanos:
    from cdc_platform.simulator.sql import sql as simsql
    import dataclasses, re
    before = simsql._query
    def query(values):
        found = before(values)
        text = values.get("start_timestamp")
        digits = re.search(r"\.\d{6}(\d+)", text or "")
        if digits and int(digits.group(1)): found = dataclasses.replace(found, start_micros=found.start_micros + 1)
        return found
    simsql._query = query
dialect = next(d for d in Dialect if d.value.lower() == a.dialect.lower() or d.name.lower() == a.dialect.lower())
extra = {}
for item in a.set:
    k, v = item.split("=")
    extra[k] = {"root_parents": RootParents, "record_sequences": RecordSequences}[k](v) if k in ("root_parents", "record_sequences") else (v == "True" if v in ("True","False") else float(v) if "." in v else int(v))
settings = SimulatorSettings(**{**dict(seed=7, rate=100, accounts=60, partitions=4, partition_life_s=1.0, history_s=10, dialect=dialect), **extra})
out = a.out + ".jsonl"
if os.path.exists(out): os.remove(out)
with Simulator(settings) as s, Emulator(find_emulator()) as emu:
    n = s.names(); end = s.database.now_micros()
    os.environ["SPANNER_EMULATOR_HOST"] = emu.host
    from google.cloud import spanner
    from google.cloud.spanner_admin_database_v1.types import DatabaseDialect
    client = spanner.Client(project=n["project"], disable_builtin_metrics=True) if False else spanner.Client(project=n["project"])
    inst = client.instance(n["instance"], configuration_name=f"projects/{n['project']}/instanceConfigs/emulator-config", node_count=1)
    inst.create().result(60)
    kw = {} if a.metadata_dialect == "GOOGLESQL" else {"database_dialect": DatabaseDialect.POSTGRESQL}
    inst.database("metadata", **kw).create().result(60)
    expected = changes_until(s, end)
    db = f"projects/{n['project']}/instances/{n['instance']}/databases/{n['database']}"
    log = open(a.out + ".router.log", "w")
    server, host = router.serve(db, s.host, emu.host, log)
    env = {k: v for k, v in os.environ.items() if k != "SPANNER_EMULATOR_HOST"}
    t = time.time()
    with open(a.out + ".java.log", "w") as jl:
        p = subprocess.Popen(["nice","-n","5","java","-Xmx1g","-cp",f"classes:{a.lib}/*","Probe", host, n["project"], n["instance"], n["database"], n["change_stream"], n["instance"], "metadata", n["start_timestamp"], to_rfc3339(end), out], stdout=jl, stderr=jl, env=env)
        try: print("exit", p.wait(a.timeout), round(time.time()-t, 1), "s")
        except subprocess.TimeoutExpired: p.kill(); print("TIMEOUT")
    server.stop(None)
    def changes():
        if not os.path.exists(out): return
        for line in open(out):
            r = json.loads(line)
            for m in r["mods"]:
                new = m["new"] and json.loads(m["new"])
                yield ReadChange(from_rfc3339(r["commit_timestamp"]), r["server_transaction_id"], r["table"], r["mod_type"], object_text(json.loads(m["keys"])), object_text(None if r["mod_type"]=="DELETE" else new))
    found = list(changes())
    parts = {json.loads(l)["partition"] for l in open(out)} if os.path.exists(out) else ()
    print(len(found), "read of", expected.total(), "in", len(parts), "partitions")
    try: assert_same_changes(expected, found); print("SAME")
    except AssertionError as e: print(e)
