"""Provisioning: one command makes the kits of a server and its sites; the second call adds, replaces and renews."""

import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from flwr.common.config import parse_config_args
from helpers import CommandLine, one_line

from fedmerit.config.schema import make_config
from fedmerit.errors import ConfigError, FolderError
from fedmerit.flower.admission import read_enrolment, read_fingerprint
from fedmerit.flower.keys import make_node_key
from fedmerit.flower.kit import UNITS, expand_kit, provision, read_kit
from fedmerit.flower.policy import Policy, read_policy
from fedmerit.flower.start import clients_of
from fedmerit.report import doctor

HOSPITALS = """
[task]
data = "nodes"
label = "died"
[task.nodes]
names = ["Hospital 1", "Klinik S\u00fcd"]
classes = ["no", "yes"]
[task.nodes.columns]
age = "number"
"""
CLIENTS = [("Hospital 1", "data='/data/rows.parquet' name='Hospital 1'"), ("Hospital 2", "data='/data/b' name='b'")]


def test_the_command_makes_a_kit_per_site(cli: CommandLine, tmp_path: Path):
    hospitals, out = tmp_path / "hospitals.toml", tmp_path / "kits"
    hospitals.write_text(HOSPITALS)
    made = cli("flower", "provision", hospitals, "--host", "server.example", "--out", out)
    assert made.code == 0, made
    assert sorted(path.name for path in out.iterdir()) == ["authority", "hospital-1", "klinik-sud", "server"]
    site, server = out / "klinik-sud", out / "server"
    wanted = "ca.crt enrolled.toml fedmerit-supernode.service node node.env node.pub policy.toml start.sh"
    assert sorted(path.name for path in site.iterdir()) == wanted.split()
    assert not (server / "ca.key").exists()  # whoever has the server cannot sign certificates
    for private in (site / "node", server / "server.key", server / "operator.key", out / "authority" / "ca.key"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    kit = read_kit(site)
    assert kit.address == "server.example:9092"
    assert str(kit.rows) == "/data/rows.parquet"
    config = parse_config_args([kit.node_words()[-1].removeprefix("--node-config=")])
    assert config["name"] == "Klinik S\u00fcd"
    assert (config["roster"], config["key"]) == (str(site / "enrolled.toml"), str(site / "node"))
    assert read_policy(site / "policy.toml") == Policy(min_rows=10)
    names = x509.load_pem_x509_certificate((server / "server.pem").read_bytes()).extensions
    alternatives = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "server.example" in alternatives.get_values_for_type(x509.DNSName)
    enrolled = read_enrolment(server / "enrolled.toml").active
    assert [enrolled[client].name for client in (0, 1)] == ["Hospital 1", "Klinik S\u00fcd"]
    assert (
        enrolled[1].key == read_fingerprint(server / "nodes" / "klinik-sud.pub") == read_fingerprint(site / "node.pub")
    )
    texts = {found.check: found for found in doctor.check_kit(server)}
    assert texts["server.key"].status == texts["server.pem"].status == "ok"


def test_a_second_call_adds_replaces_and_renews(tmp_path: Path):
    provision(CLIENTS[:1], "server.example", 9092, tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("hospital-1/node", "authority/ca.key")}
    before["server/operator.key"] = (tmp_path / "server/operator.key").read_bytes()
    certificate = (tmp_path / "server/server.pem").read_bytes()
    (tmp_path / "hospital-1/policy.toml").write_text("min_rows = 50")
    provision(CLIENTS, "server.example", 9092, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "server/server.pem").read_bytes() != certificate
    assert read_policy(tmp_path / "hospital-1/policy.toml").min_rows == 50
    old = read_enrolment(tmp_path / "server/enrolled.toml").active
    own = make_node_key(tmp_path / "own", "node")  # the hospital made its own key, and sent the public one
    shutil.copy(own.with_suffix(".pub"), tmp_path / "hospital-1/node.pub")
    provision(CLIENTS, "server.example", 9092, tmp_path)
    entries = read_enrolment(tmp_path / "server/enrolled.toml")
    assert entries.active == {1: old[1], 0: entries.active[0]}
    assert entries.active[0].key == read_fingerprint(own.with_suffix(".pub"))
    assert [entry.key for entry in entries.client if entry.revoked] == [old[0].key]
    with pytest.raises(ConfigError, match=r"is for server\.example:9092"):
        provision(CLIENTS, "other.example", 9092, tmp_path)


def test_a_simulated_task_has_a_kit_per_partition():
    clients = clients_of(make_config({"task": {"data": "digits", "clients": 3}}))
    assert clients[1] == ("client 1", "partition-id=1 num-partitions=3")
    assert len(clients) == 3


def test_a_folder_that_is_no_kit_is_one_clear_error(cli: CommandLine, tmp_path: Path):
    with pytest.raises(FolderError, match="is not a kit"):
        read_kit(tmp_path)
    (tmp_path / "node.env").write_text("NODE_CONFIG=x\n")
    assert "has no SUPERLINK" in one_line(cli("flower", "stop", "--kit", tmp_path))
    assert "give --kit DIR" in one_line(cli("flower", "follow"))


def test_units_start_the_kits_processes_and_are_not_exposed(tmp_path: Path):
    provision(CLIENTS[:1], "server.example", 9092, tmp_path)
    units = sorted(tmp_path.glob("*/*.service"))
    assert [unit.stem for unit in units] == ["fedmerit-supernode", "fedmerit-superexec", "fedmerit-superlink"]
    for unit in units:
        lines = unit.read_text().splitlines()
        assert "User=fedmerit" in lines
        (command,) = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
        process = unit.stem.removeprefix("fedmerit-")
        assert command == f"/opt/fedmerit/bin/{UNITS[process][1]}"
        if shutil.which("systemd-analyze"):
            done = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)], check=False
            )
            assert done.returncode == 0, unit  # 30: an exposure below 3.0
    words = expand_kit(["--kit", str(tmp_path / "server"), "--port=1"], lambda kit: kit.superlink_words())
    assert words[-1] == "--port=1"  # later options win
    assert "--port=9092" in words
    for script in tmp_path.glob("*/start.sh"):
        assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
        assert shlex.split(script.read_text().splitlines()[0], comments=True) == []
