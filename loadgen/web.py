"""Our part of Locust's web UI: a form that says what is wrong, a link to the report, and who may come in.

Locust binds to every interface without a password and lets any web page start a test. Here it listens on
loopback unless told otherwise, and beyond loopback asks for the password in LOAD_WEB_PASSWORD. A container
that publishes its port on loopback only says so with LOAD_WEB_BEHIND_LOOPBACK=1.
"""

from __future__ import annotations

import hmac
import logging
import os
import sys
from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

from flask import Response, jsonify, make_response, request, send_file
from locust.env import Environment
from locust.util.timespan import parse_timespan
from locust.web import WebUI

from loadgen.conductor import NO_RUN, Conductor
from loadgen.options import OPTIONS
from runlog.exit_codes import ExitCode
from runlog.folder import REPORT_HTML

logger = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PASSWORD_VARIABLE = "LOAD_WEB_PASSWORD"
BEHIND_LOOPBACK_VARIABLE = "LOAD_WEB_BEHIND_LOOPBACK"
REPORT_PATH = "/load/report"


def set_defaults(parser: Any) -> None:
    """Let Locust's UI listen on loopback unless --web-host or LOCUST_WEB_HOST says otherwise."""
    parser.set_defaults(web_host=LOOPBACK[0])


def extend(environment: Environment, conductor: Conductor) -> None:
    """Add our checks and pages to the UI. Ends the process when it would be open to the network."""
    web_ui = environment.web_ui
    options = environment.parsed_options
    assert web_ui is not None
    assert options is not None
    password = os.environ.get(PASSWORD_VARIABLE)
    if refusal := open_to_the_network(options.web_host, password):
        logger.error("%s", refusal)
        sys.exit(int(ExitCode.USAGE))
    prefix = options.web_base_path or ""
    started_with = {option.name: getattr(options, option.name) for option in OPTIONS if option.told}

    def guard() -> Response | None:
        return _locked(password) or _foreign_origin() or _foreign_host(options.web_host, password)

    def check_the_form() -> Response | None:
        if request.method != "POST" or request.path != f"{prefix}/swarm":
            return None
        form = request.form.to_dict()
        form |= {name: text for name, text in started_with.items() if not form.get(name)}
        message = form_error(environment, conductor, form)
        if message is None:
            return None
        return jsonify({"success": False, "message": message, "host": environment.host})

    def load_report() -> Response:
        report = None if conductor.folder is None else conductor.folder.resolve() / REPORT_HTML
        if report is None or not report.exists():
            return make_response(("No run has ended yet; its report will be here.", 404))
        return send_file(report)

    for shape_class in (environment.available_shape_classes or {}).values():
        # Users and ramp-up mean nothing here, and Duration is a field of ours.
        vars(shape_class)["use_common_options"] = False
    _label_fields(web_ui)
    app = web_ui.app
    assert app is not None
    app.jinja_env.policies["json.dumps_kwargs"] = {"sort_keys": False}  # fields in the order of OPTIONS
    app.before_request(guard)
    # Flask calls these in reverse order and one of them sets the CORS headers: ours must come last.
    app.after_request_funcs.setdefault(None, []).insert(0, _only_our_own_pages)
    app.before_request(check_the_form)
    app.add_url_rule(f"{prefix}{REPORT_PATH}", view_func=load_report)
    links = web_ui.template_args.setdefault("extended_csv_files", [])
    links.append({"href": f"{prefix}{REPORT_PATH}", "title": "Burst report of the last run (HTML)"})


def _label_fields(web_ui: WebUI) -> None:
    """Give our fields short labels; Locust would show the whole help text as the label."""
    fill_in = web_ui.update_template_args

    def fill_in_with_labels() -> None:
        fill_in()  # type: ignore[no-untyped-call]
        fields = web_ui.template_args["extra_options"]
        for option in OPTIONS:
            if option.name in fields:
                fields[option.name]["help_text"] = option.label
                if option.told:  # it was given at the start, and the page's source shows what is filled in
                    fields[option.name]["default_value"] = ""

    web_ui.update_template_args = fill_in_with_labels  # type: ignore[method-assign]


def open_to_the_network(web_host: str, password: str | None) -> str | None:
    """Why the UI may not listen there, with what to do; None when it may."""
    if web_host in LOOPBACK or password or os.environ.get(BEHIND_LOOPBACK_VARIABLE) == "1":
        return None
    return (
        f"--web-host {web_host!r} opens the web UI to the network: set a password in {PASSWORD_VARIABLE}, "
        f"or leave --web-host out to listen on {LOOPBACK[0]}"
    )


def form_error(environment: Environment, conductor: Conductor, form: dict[str, str]) -> str | None:
    """What is wrong with a filled form, in one line; None when the run can begin. Plans and runs the
    preflight.
    """
    state = environment.runner.state if environment.runner else ""
    if state in ("spawning", "running", "stopping"):
        return "A run is going on: stop it first, then start the next one."
    if refusal := conductor.short_of_workers():
        return refusal
    known = {option.name for option in OPTIONS}
    options = Namespace(**vars(environment.parsed_options))
    for name, text in form.items():
        if name in known:
            setattr(options, name, text)
    try:
        if form.get("run_time"):
            options.run_time = parse_timespan(form["run_time"])
    except ValueError:
        return "The run time cannot be read; write it like 90s, 3m or 1h30m."
    picked = form.get("shape_class", "Default")
    shapes = environment.available_shape_classes or {}
    shape_class = shapes.get(picked) if picked != "Default" else environment.shape_class
    if shape_class is None:
        shape_class = next(iter(shapes.values()), None)
    try:
        conductor.check(
            options, form.get("host") or environment.host, getattr(shape_class, "shape_name", None)
        )
    except tuple(NO_RUN) as error:
        return str(error)
    return None


def _locked(password: str | None) -> Response | None:
    """Ask for the password where there is one; any user name will do."""
    given = request.authorization.password if request.authorization else None
    if not password or (given and hmac.compare_digest(given.encode(), password.encode())):
        return None
    answer = make_response(("A password is needed.", 401))
    answer.headers["WWW-Authenticate"] = 'Basic realm="load test"'
    return answer


def _foreign_host(web_host: str, password: str | None) -> Response | None:
    """On loopback and without a password, refuse a name that a page elsewhere may have pointed here."""
    if password or web_host not in LOOPBACK or urlsplit(f"//{request.host}").hostname in LOOPBACK:
        return None
    return make_response((f"Open this at http://{LOOPBACK[0]}; {PASSWORD_VARIABLE} allows other names.", 403))


def _only_our_own_pages(answer: Response) -> Response:
    """Locust lets every site's pages read what it answers."""
    for header in [name for name, _ in answer.headers.items() if name.lower().startswith("access-control-")]:
        del answer.headers[header]
    if request.path.endswith("/stats/requests") and b'"cleanup"' in answer.get_data():
        # The page stops asking when it sees this passing state, and would show it for ever.
        answer.set_data(answer.get_data().replace(b'"cleanup"', b'"running"'))
    return answer


def _foreign_origin() -> Response | None:
    """Refuse what another site's page sends: Locust itself answers to every origin."""
    origin = request.headers.get("Origin")
    if request.method == "GET" or not origin or urlsplit(origin).netloc == request.host:
        return None
    return make_response(("This came from another site's page and is refused.", 403))
