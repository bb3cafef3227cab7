"""deploy/kubernetes: valid for Kubernetes, complete for Kustomize, and true about this program."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from config import PROJECT_ROOT, Settings, knobs
from database.connection import DatabaseConnection
from services.schedule_repository import ScheduleRepository
from tests.support.schedules import VALID

ROOT = PROJECT_ROOT / "deploy/kubernetes"
BASE, FLEET = ROOT / "base", ROOT / "overlays/fleet"
COMPONENT = "app.kubernetes.io/component"
SECRET_KEYS = {"database-url", "database-owner-url", "redis-url", "jwt-secret-key", "celery-broker-url"}
OF_KEDA = ("ScaledObject", "TriggerAuthentication")
Resource = dict[str, Any]


def documents(file: Path) -> list[Resource]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


@cache
def kustomization(directory: Path) -> Resource:
    (found,) = documents(directory / "kustomization.yaml")
    return dict(found)


def patches(directory: Path) -> list[Resource]:
    return [
        document
        for patch in kustomization(directory).get("patches", [])
        for document in documents(directory / patch["path"])
    ]


def resources(directory: Path) -> list[Resource]:
    """Those of the directory itself."""
    files = [directory / name for name in kustomization(directory)["resources"] if name.endswith(".yaml")]
    return [document for file in files for document in documents(file)]


def name_of(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


EVERYTHING = [*resources(BASE), *resources(FLEET)]
PODS = {
    name_of(resource)[1]: resource["spec"]["template"]
    for resource in EVERYTHING
    if resource["kind"] in ("Deployment", "Job")
}
SETTINGS = next(resource["data"] for resource in EVERYTHING if resource["kind"] == "ConfigMap")


def container_of(pod: Resource) -> Resource:
    (container,) = pod["spec"]["containers"]
    return dict(container)


@pytest.mark.parametrize("resource", [*EVERYTHING, *patches(FLEET)], ids=lambda resource: "/".join(name_of(resource)))
def test_kubernetes_would_accept_it(resource: Resource) -> None:
    """Strictly: a field that does not exist is an error, too. KEDA's own kinds are judged below."""
    if resource["kind"] not in OF_KEDA and resource not in patches(FLEET):
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    assert resource["apiVersion"]


def test_a_field_that_does_not_exist_would_be_noticed() -> None:
    wrong = {**EVERYTHING[0], "automountToken": False}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("directory", [BASE, FLEET], ids=lambda directory: directory.name)
def test_kustomize_finds_each_file_and_nothing_is_left_over(directory: Path) -> None:
    named = kustomization(directory)
    files = {*named["resources"], *(patch["path"] for patch in named.get("patches", []))}
    assert all((directory / name).exists() for name in files)
    assert {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml"} == {
        name for name in files if name.endswith(".yaml")
    }
    if directory == FLEET:
        assert (directory / "../../base").resolve() == BASE.resolve()
        assert "../../base" in files


def test_a_patch_changes_what_the_base_has() -> None:
    known = {name_of(resource): resource for resource in resources(BASE)}
    for patch in patches(FLEET):
        target = known[name_of(patch)]
        for container in patch["spec"]["template"]["spec"]["containers"] if patch["kind"] == "Deployment" else []:
            assert container["name"] == container_of(target["spec"]["template"])["name"]


def test_images_are_those_whose_tags_are_set() -> None:
    tagged = {image["name"] for directory in (BASE, FLEET) for image in kustomization(directory)["images"]}
    assert {container_of(pod)["image"] for pod in PODS.values()} == tagged


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS.keys())
def test_a_pod_has_no_rights_that_it_does_not_need(pod: Resource) -> None:
    spec, container = pod["spec"], container_of(pod)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == int("".join(filter(str.isdigit, _user_of_the_image())))
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("scheduler", False)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]


def _user_of_the_image() -> str:
    lines = (PROJECT_ROOT / "Dockerfile").read_text().splitlines()
    return [line for line in lines if line.startswith("USER")][-1]


def variables(pod: Resource) -> Iterator[Resource]:
    yield from container_of(pod).get("env", [])


@pytest.mark.parametrize("pod", [*PODS.values(), *(p["spec"]["template"] for p in patches(FLEET) if "spec" in p)])
def test_secrets_are_references_and_every_variable_is_a_setting(pod: Resource) -> None:
    for variable in variables(pod):
        name, source = variable["name"], variable.get("valueFrom", {})
        assert name in knobs() or name == "CELERY_BROKER_URL"
        if "secretKeyRef" in source:
            assert source["secretKeyRef"]["name"] == "scheduler-secrets"
            assert source["secretKeyRef"]["key"] in SECRET_KEYS
        else:
            assert not name.endswith(("_URL", "_KEY", "_PASSWORD", "_TOKEN"))


def test_whoever_knows_of_fleet_queues_knows_their_broker() -> None:
    """Else it is taken for the scheduler's own Redis, as whose user the doctor in a web pod would be refused."""
    with_settings = {name for name, pod in PODS.items() if "envFrom" in container_of(pod)}
    patched = [(name_of(patch)[1], patch["spec"]["template"]) for patch in patches(FLEET) if "spec" in patch]
    with_broker = {
        name
        for name, pod in [*PODS.items(), *patched]
        if "CELERY_BROKER_URL" in {variable["name"] for variable in variables(pod)}
    }
    assert with_broker == with_settings == {"scheduler-replicas", "scheduler-web", "scheduler-workers"}


def test_the_documentation_creates_every_key_of_the_secret() -> None:
    text = (PROJECT_ROOT / "docs/kubernetes.md").read_text()
    assert [key for key in SECRET_KEYS if f"--from-literal={key}=" not in text] == []


def test_the_settings_are_valid_and_only_the_migrations_are_the_owner() -> None:
    fleets = next(patch["data"] for patch in patches(FLEET) if patch["kind"] == "ConfigMap")
    known = {name.lower(): value for name, value in {**SETTINGS, **fleets}.items() if name != "CELERY_QUEUES"}
    assert Settings(_env_file=None, **known).metrics_port == 9108
    owners = [
        name
        for name, pod in PODS.items()
        for variable in variables(pod)
        if variable.get("valueFrom", {}).get("secretKeyRef", {}).get("key") == "database-owner-url"
    ]
    assert owners == ["scheduler-migrate"]
    with_tokens = [
        name for name, pod in PODS.items() if "JWT_SECRET_KEY" in {variable["name"] for variable in variables(pod)}
    ]
    assert with_tokens == ["scheduler-web"]


@pytest.mark.parametrize("name", ["scheduler-replicas", "scheduler-workers"])
def test_a_process_is_named_after_its_pod_and_knows_its_node(name: str) -> None:
    """Copies of a schedule are on different nodes only if HOST_NAME is the node's."""
    fields = {
        v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"]
        for v in variables(PODS[name])
        if "fieldRef" in v.get("valueFrom", {})
    }
    assert fields == {"INSTANCE_ID": "metadata.name", "HOST_NAME": "spec.nodeName"}


@pytest.mark.parametrize("name", ["scheduler-replicas", "scheduler-web", "scheduler-workers"])
def test_a_pod_is_killed_only_after_the_grace_of_its_process(name: str) -> None:
    assert PODS[name]["spec"]["terminationGracePeriodSeconds"] > int(SETTINGS["SHUTDOWN_GRACE_SECONDS"])


@pytest.mark.parametrize(("name", "port"), [("scheduler-replicas", 9108), ("scheduler-web", 8000)])
def test_probes_ask_where_the_process_answers(name: str, port: int) -> None:
    container = container_of(PODS[name])
    (opened,) = container["ports"]
    assert opened["containerPort"] == port
    asked = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: get["path"] for kind, get in asked.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {get["port"] for get in asked.values()} == {opened["name"]}


def test_commands_are_programs_of_this_project() -> None:
    for pod in PODS.values():
        program, *words = container_of(pod)["command"]
        assert program in ("python", "celery")
        if program == "python":
            assert (PROJECT_ROOT / words[0]).is_file()


def labels_of(name: str) -> dict[str, str]:
    return dict(PODS[name]["metadata"]["labels"])


def test_whatever_selects_pods_selects_some() -> None:
    """Services, budgets, policies and Deployments; Kustomize adds one more label to selectors and pods alike."""
    components = {labels_of(name)[COMPONENT] for name in PODS}
    for resource in EVERYTHING:
        spec = resource.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert wanted[COMPONENT] in components, name_of(resource)
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        covered = {
            (r["spec"].get("podSelector") or r["spec"]["selector"])["matchLabels"][COMPONENT]
            for r in EVERYTHING
            if r["kind"] == kind
        }
        assert components - covered <= ({"migrate"} if kind == "PodDisruptionBudget" else set())


def test_a_rolling_update_takes_no_replica_away_before_the_next_one_holds_its_share() -> None:
    (deployment,) = [r for r in EVERYTHING if name_of(r) == ("Deployment", "scheduler-replicas")]
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["spec"]["replicas"] > int(SETTINGS["TIMER_COPIES"])


# --- scaling ---


def scaled() -> Resource:
    return next(resource for resource in EVERYTHING if resource["kind"] == "ScaledObject")


def test_the_workers_are_scaled_by_keda_alone() -> None:
    (trigger,) = scaled()["spec"]["triggers"]
    (deployment,) = [r for r in EVERYTHING if name_of(r) == ("Deployment", scaled()["spec"]["scaleTargetRef"]["name"])]
    assert "replicas" not in deployment["spec"]
    command = container_of(deployment["spec"]["template"])["command"]
    assert trigger["metadata"]["targetQueryValue"] == command[command.index("--concurrency") + 1]
    queue = command[command.index("--queues") + 1]
    assert f"s.queue = '{queue}'" in trigger["metadata"]["query"]
    assert next(p["data"] for p in patches(FLEET) if p["kind"] == "ConfigMap")["CELERY_QUEUES"] == queue
    (login,) = [r for r in EVERYTHING if r["kind"] == "TriggerAuthentication"]
    assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
    assert login["spec"]["secretTargetRef"] == [
        {"parameter": "connection", "name": "scheduler-secrets", "key": "database-url"}
    ]


def test_the_query_counts_what_is_due_or_runs_in_the_queue(
    db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    ours, others = (repository.create_schedule(**{**VALID, "queue": queue}) for queue in ("browser", "other"))
    now, later = "now() - interval '1 second'", "now() + interval '1 hour'"
    rows = [(ours, "pending", now), (ours, "running", now), (ours, "pending", later), (ours, "success", now)]
    rows += [(others, "pending", now), (others, "running", now)]
    with db.transaction() as connection:
        for number, (schedule_id, status, due_at) in enumerate(rows):
            connection.exec_driver_sql(
                f"""INSERT INTO job_executions
                        (schedule_id, job_id, domain_config_id, domain, status, due_at, scheduled_for)
                    VALUES (%s, 'j', gen_random_uuid(), 'd', %s, {due_at}, now() - %s * interval '1 minute')""",
                (str(schedule_id), status, number),
            )
        query = scaled()["spec"]["triggers"][0]["metadata"]["query"]
        assert connection.exec_driver_sql(query).scalar_one() == 2
