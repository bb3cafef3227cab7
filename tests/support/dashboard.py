"""What the tests of the dashboard share: logging in, schedules by SQL, and a look at the contrast of all words."""

import re

from playwright.sync_api import Page, expect

from tests.support.replicas import Cluster

PATIENCE_MS = 60_000
# Words with less contrast than WCAG AA asks for.
FAINT_WORDS = """() => {
  const brush = Object.assign(document.createElement('canvas'), {width: 1, height: 1})
    .getContext('2d', {willReadFrequently: true});
  const channels = colour => {
    brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((value, i) => (value * a + under[i] * (255 - a)) / 255);
  const ground = element => {
    const own = element ? channels(getComputedStyle(element).backgroundColor) : [255, 255, 255, 255];
    return own[3] === 255 ? own.slice(0, 3) : over(own, ground(element.parentElement));
  };
  const light = colour => colour.map(value => value / 255)
    .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0.05);
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const words = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
    if (!words || !element.checkVisibility({visibilityProperty: true})) continue;
    if (element.closest('script, style, .disabled, .q-icon')) continue;
    const style = getComputedStyle(element), below = ground(element);
    const [a, b] = [light(over(channels(element.closest('svg') ? style.fill : style.color), below)), light(below)];
    const contrast = Math.max(a, b) / Math.min(a, b);
    if (contrast < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(words + ' ' + contrast.toFixed(2));
  }
  return found;
}"""


def log_in(page: Page, token: str) -> None:
    page.goto("/")
    expect(page).to_have_url(re.compile(r"/login\?to=/$"))
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def insert(cluster: Cluster, name: str, job_type: str, config: str = "{}", time_config: str = '{"hours": 12}') -> str:
    cluster.run(
        """INSERT INTO schedules (domain_config_id, domain, name, job_type, frequency, time_config, job_config)
           VALUES (gen_random_uuid(), %s, %s, %s, 'interval', %s, %s)""",
        name, name, job_type, time_config, config,
    )  # fmt: skip
    return str(cluster.rows("SELECT schedule_id FROM schedules WHERE name = %s", name)[0][0])


def enabled(cluster: Cluster, name: str) -> bool:
    return bool(cluster.rows("SELECT enabled FROM schedules WHERE name = %s", name)[0][0])
