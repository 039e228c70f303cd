"""The trace player in Chromium: every event by keyboard, with its line; jumps, memory, links, a reader's own file."""
from __future__ import annotations

import json
import re
import tempfile

from tools.tests.site import browser
from tools.tests.site.ladder import COPYING, EARLIER, INSTRUCTIONS, LATER, PLAIN, TRACES, WITH_MBARRIERS

# Presses a key until nothing moves; each event that the page comes to, its line, and the lines marked in the kernel.
PRESS = """
  const [key, shift, most] = arguments, root = document.querySelector('.player');
  const seen = [];
  for (let i = 0; i < most; ++i) {
    const before = root.dataset.event;
    root.dispatchEvent(new KeyboardEvent('keydown', {key, shiftKey: shift, bubbles: true, cancelable: true}));
    if (root.dataset.event === before) break;
    seen.push([root.dataset.event, root.dataset.line, ...[...root.querySelectorAll('.line.current')].map(line => line.dataset.n)].map(Number));
  }
  return seen;
"""


def sites(trace: dict) -> list[tuple[int, dict]]:
    """(warp, site) of every event."""
    return [(warp, trace["sites"][site]) for site, warp, *_ in trace["events"]]


class Player(browser.BrowserCase):
    opened = False

    def tearDown(self) -> None:
        if self.opened:
            self.check_what_was_asked_for()

    def start(self, hash: str = "") -> None:
        self.browser.get("about:blank")
        self.open((self.site / "docs" / "player.html").as_uri() + hash)
        self.opened = True

    def press(self, key: str, times: int = 1, shift: bool = False) -> list:
        return self.run_script(PRESS, key, shift, times)

    def said(self) -> str:
        return self.run_script("return document.querySelector('.said').textContent")

    def choose(self, name: str, value: str) -> None:
        self.run_script("const c = document.querySelector(`[data-choice=${arguments[0]}]`); c.value = arguments[1];"
                        "c.dispatchEvent(new Event('change', {bubbles: true}))", name, value)

    def test_every_event_by_key_and_its_line_marked(self) -> None:
        """From the first to the last in the shortest traces that have every instruction; of the others, in some the first 100,
        and the last."""
        self.start("#order=emulated")
        known: set[str] = set()
        for i, (stage, trace) in enumerate(sorted(TRACES.items(), key=lambda named: len(named[1]["events"]))):
            if INSTRUCTIONS[stage] <= known and not browser.takes(i):
                continue
            with self.subTest(stage=stage):
                self.choose("stage", stage)
                # Of what is said in common/words/ the kernel that is shown has no line.
                expected = [[event, site["line"], *([] if site["file"].startswith("words/") else [site["line"]])]
                            for event, (_, site) in enumerate(sites(trace))][1:]
                self.assertIn("Event 0, warp 0, ", self.said())
                if INSTRUCTIONS[stage] <= known:
                    expected = [*expected[:100], expected[-1]]
                    seen = [*self.press("ArrowRight", 100), *self.press("End")]
                else:
                    seen = self.press("ArrowRight", 10**6)
                known |= INSTRUCTIONS[stage]
                self.assertEqual(len(seen), len(expected))
                self.assertEqual([pair for pair in zip(seen, expected) if pair[0] != pair[1]][:3], [])  # a diff of thousands takes minutes
                states = self.run_script("return [...document.querySelectorAll('.lanes .state-text')].map(text => text.textContent)")
                # A launch has its own warps; one of which the trace has nothing in the last one does not begin there.
                last = sites(trace)[-1][1]["launch"]
                ended = {warp for warp, site in sites(trace) if site["launch"] == last}
                idle = 1 + max(warp for warp, _ in sites(trace)) - len(ended)
                self.assertEqual(sorted(states), ["has ended"] * len(ended) + ["has not begun"] * idle)

    def test_turns_are_an_order_that_the_barriers_allow(self) -> None:
        self.start()
        for stage, trace in TRACES.items():
            if stage in WITH_MBARRIERS:
                continue
            with self.subTest(stage=stage):
                order = self.run_script("const text = document.querySelector(`script.stage[data-name='${arguments[0]}']`).textContent;"
                                        "const turns = trace.read(text).turns; return turns && turns.map(event => event.id)", stage)
                if any(site["instruction"].startswith("mbarrier") for _, site in sites(trace)):
                    self.assertIsNone(order)  # who may pass depends on single lanes' arrivals, which a trace has not
                    continue
                self.assertEqual(sorted(order), list(range(len(trace["events"]))))
                self.check_turns(sites(trace), order)
        self.choose("stage", PLAIN.name)
        order = self.run_script(f"return trace.read(document.querySelector(`script.stage[data-name='{PLAIN.name}']`).textContent).turns.map(e => e.id)")
        self.assertEqual([event for event, *_ in self.press("ArrowRight", 500)], order[1:501])

    def test_with_mbarriers_there_is_the_emulated_order_alone(self) -> None:
        self.assertGreater(len(WITH_MBARRIERS), 1)
        self.start()
        for i, stage in enumerate(WITH_MBARRIERS):
            if not browser.takes(i):
                continue
            with self.subTest(stage=stage):
                self.choose("stage", stage)
                self.assertEqual(self.order(), ["emulated", True])
                self.assertIn("as emulated alone", self.run_script("return document.querySelector('.about').textContent"))
                self.assertEqual([event for event, *_ in self.press("ArrowRight", 20)], list(range(1, 21)))
        self.choose("stage", PLAIN.name)  # what the reader had chosen is back
        self.assertEqual(self.order(), ["turns", False])
        self.start(f"#stage={WITH_MBARRIERS[0]}&event=7&order=turns")
        self.assertIn("Event 7, ", self.said())

    def order(self) -> list:
        return self.run_script("const order = document.querySelector('[data-choice=order]'); return [order.value, order.disabled]")

    def check_turns(self, events: list, order: list[int]) -> None:
        """Within a warp as in the trace; nobody is behind a barrier that somebody has not come to."""
        for launch in {site["launch"] for _, site in events}:
            queue = [event for event in order if events[event][1]["launch"] == launch]
            warps = {events[event][0] for event in queue}
            passed = dict.fromkeys(warps, 0)
            last = dict.fromkeys(warps, -1)
            for event in queue:
                warp, site = events[event]
                self.assertGreater(event, last[warp])
                last[warp] = event
                self.assertEqual(passed[warp], min(passed.values()), f"event {event} of warp {warp}")
                passed[warp] += site["instruction"] == "__syncthreads"

    def test_real_keys(self) -> None:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        self.start(f"#stage={EARLIER.name}&order=emulated")
        self.run_script("document.querySelector('.player').focus()")
        keys = [Keys.ARROW_RIGHT] * 5 + [Keys.ARROW_LEFT] * 2 + [Keys.END] + [Keys.ARROW_LEFT]
        ActionChains(self.browser).send_keys(*keys).perform()
        last = len(TRACES[EARLIER.name]["events"]) - 1
        self.assertIn(f"Event {last - 1}, warp 1, STORE, line", self.said())
        # The marked line is in sight.
        self.wait_for(lambda: self.run_script("""
          const pane = document.querySelector('.source').getBoundingClientRect(), line = document.querySelector('.current').getBoundingClientRect();
          return line.top >= pane.top && line.bottom <= pane.bottom"""))
        # Everything can be come to with the tab key, and the slider hears the same keys.
        names = set()
        for _ in range(30):
            ActionChains(self.browser).send_keys(Keys.TAB).perform()
            names.add(self.run_script("const e = document.activeElement; return e.dataset.action || e.dataset.choice || e.type || e.className"))
        self.assertLessEqual({"stage", "warp", "order", "file", "first", "back", "play", "next", "last", "next-wait", "next-barrier", "range", "source"}, names)
        self.run_script("document.querySelector('.player input[type=range]').focus()")
        ActionChains(self.browser).send_keys(Keys.HOME, Keys.ARROW_RIGHT).perform()
        self.assertIn("Event 1, ", self.said())
        ActionChains(self.browser).send_keys(Keys.SPACE).perform()
        self.wait_for(lambda: "Event 2, " in self.said())
        ActionChains(self.browser).send_keys(Keys.SPACE).perform()

    def test_jumps(self) -> None:
        self.start(f"#stage={COPYING.name}&order=emulated")
        events = sites(TRACES[COPYING.name])
        for key, instruction in (("b", "__syncthreads"), ("w", "cp.async.wait_group")):
            expected = [event for event, (_, site) in enumerate(events) if site["instruction"] == instruction]
            self.press("Home")
            self.assertEqual([event for event, *_ in self.press(key, 1000)], expected)
            self.press("End")
            self.assertEqual([event for event, *_ in self.press(key.upper(), 1000)], expected[::-1])
        self.choose("warp", "2")
        self.press("Home")
        part = re.compile(r"(?:LOAD|QK|SOFTMAX|PV) of tile \d|STORE")
        parts = [part.search(self.said())[0]]
        while self.press("ArrowRight", shift=True):
            parts.append(part.search(self.said())[0])
        self.assertEqual(parts, [f"{part} of tile {tile}" for tile in (0, 1) for part in ("LOAD", "QK", "SOFTMAX", "LOAD", "PV")] + ["STORE"])
        self.press("Home")
        own = [event for event, (warp, _) in enumerate(events) if warp == 2]
        self.assertEqual([event for event, *_ in self.press("ArrowRight", 10000)], own[1:])

    def test_shared_memory_is_what_the_copies_and_waits_make_it(self) -> None:
        self.start(f"#stage={COPYING.name}&order=emulated")
        trace = TRACES[COPYING.name]
        in_flight = "return [...document.querySelectorAll('.memory svg')].slice(0, 3).map(svg => svg.querySelectorAll('.state1').length)"
        self.assertEqual(self.run_script(in_flight), [2, 0, 0])
        open_, groups, flying = {}, {}, []
        for event, (_, warp, *_rest) in enumerate(trace["events"]):
            site = trace["sites"][trace["events"][event][0]]
            if site["instruction"] == "cp.async.16":
                open_.setdefault(warp, []).append(site)
            elif site["instruction"] == "cp.async.commit_group":
                groups.setdefault(warp, []).append(open_.pop(warp, []))
            elif site["instruction"] == "cp.async.wait_group":
                groups[warp] = []
            rows = dict.fromkeys("QKV", 0)
            for copies in [*open_.values(), *(group for queue in groups.values() for group in queue)]:
                for site_ in copies:
                    rows[site_["shared"]["buffer"]] += site_["shared"]["bytes"] // 256
            flying.append([rows[name] for name in "QKV"])
        shown = [self.run_script(in_flight)]
        for _ in range(len(trace["events"]) // 37):
            self.press("ArrowRight", 37)
            shown.append(self.run_script(in_flight))
        self.assertEqual(shown, flying[::37][:len(shown)])
        self.assertTrue(any(v for _, _, v in shown) and any(k for _, k, _ in shown))
        # The point of it, with all warps at work: V is in flight under QK. Before, nothing is.
        for stage, whole in ((COPYING.name, 128), (PLAIN.name, 0)):
            self.start(f"#stage={stage}")
            while "QK of tile 0" not in self.said():
                self.press("p")
            self.press("ArrowRight", 40)
            self.assertIn("QK of tile 0", self.said())
            self.assertEqual(self.run_script(in_flight), [0, 0, whole])

    def test_who_waits_where(self) -> None:
        self.start(f"#stage={COPYING.name}&order=emulated")
        at_barrier: dict[int, int] = {}
        expected = []
        for warp, site in sites(TRACES[COPYING.name]):
            if site["instruction"] == "__syncthreads":
                at_barrier[warp] = site["line"]
                if len(at_barrier) == 4:
                    at_barrier = {}
            expected.append([f"waits at line {at_barrier[w]}" if w in at_barrier else "" for w in range(4)])
        shown = self.run_script("""
          const root = document.querySelector('.player'), found = [];
          for (let i = 0; i < arguments[0]; ++i) {
            found.push([...document.querySelectorAll('.lanes .state-text')].map(text => text.textContent.startsWith('waits') ? text.textContent : ''));
            root.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
          }
          return found;""", len(expected))
        self.assertEqual(shown, expected)
        # The picture says the same: how much of the trace each warp waits.
        waits = self.run_script("return [...document.querySelectorAll('.lanes svg')].map(svg => [...svg.querySelectorAll('.WAIT')]"
                                ".reduce((sum, rect) => sum + Number(rect.getAttribute('width')), 0))")
        for warp, drawn in enumerate(waits):
            waited = sum(1 for before, now in zip(expected, expected[1:]) if before[warp] and now[warp])
            self.assertEqual(drawn, waited)

    def test_a_link_restores_the_view(self) -> None:
        self.start()
        self.choose("stage", LATER.name)
        self.choose("order", "emulated")
        self.choose("warp", "1")
        self.press("ArrowRight", 700)
        said = self.said()
        self.wait_for(lambda: "event=" in self.browser.current_url and re.search(r"Event (\d+)", said)[1] in self.browser.current_url)
        link = self.browser.current_url.partition("#")[2]
        self.start("#" + link)
        self.assertEqual(self.said(), said)
        self.assertEqual([self.run_script(f"return document.querySelector('[data-choice={name}]').value") for name in ("stage", "warp", "order")],
                         [LATER.name, "1", "emulated"])
        self.open((self.site / LATER.directory / "README.html").as_uri())  # a chapter leads to its trace
        self.browser.find_element("link text", "Step through it").click()
        self.wait_for(lambda: LATER.name in self.run_script("return document.querySelector('.about')?.textContent || ''"))
        for nonsense in ("#stage=99&event=-1&warp=x&order=y", f"#stage={COPYING.name}&event=99999999", "#%%%"):
            self.start(nonsense)
            self.assertIn("Event 0, ", self.said())

    def give(self, text: str) -> str:
        """Hands the page a file; what it says against it."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            self.run_script("document.querySelector('.refusal').textContent = '...'")
            self.browser.find_element("css selector", ".player input[type=file]").send_keys(file.name)
            self.wait_for(lambda: self.run_script("return document.querySelector('.refusal').textContent") != "...")
            self.run_script("document.querySelector('.player input[type=file]').value = ''")
        return self.run_script("return document.querySelector('.refusal').textContent")

    def test_own_trace(self) -> None:
        self.start()
        trace = TRACES[EARLIER.name]
        own = trace | {"stage": "mine", "source": [f"my line {n + 1}" for n in range(170)]}
        self.assertEqual(self.give(json.dumps(own)), "")
        self.assertIn(f"mine, {EARLIER.default.label}", self.run_script("return document.querySelector('.about').textContent"))
        self.press("End")
        line = sites(trace)[-1][1]["line"]
        self.assertEqual(self.run_script("return document.querySelector('.source .current').textContent.trim()"), f"my line {line}")
        before = self.said()
        without_source = {key: value for key, value in trace.items() if key != "source"}
        events, some = trace["events"], trace["sites"]
        meeting = next(site["line"] for site in some if "sync" in site["instruction"])
        broken = {
            "not JSON": json.dumps(trace)[:5000],
            "it has no \"format\"": json.dumps([1, 2]),
            "Its format is \"flash-ladder trace 7\"": json.dumps(trace | {"format": "flash-ladder trace 7"}),
            "It has no list \"sites\"": json.dumps({key: value for key, value in trace.items() if key != "sites"}),
            "It has no events": json.dumps(trace | {"events": []}),
            "Event 0 is of site 99, but there are": json.dumps(trace | {"events": [[99, 0], *events[1:]]}),
            "Event 0 has 2 numbers where its site needs 3": json.dumps(trace | {"events": [events[0][:2], *events[1:]]}),
            "Event 0 is not a list of numbers": json.dumps(trace | {"events": [["x"], *events[1:]]}),
            "Site 0 has no instruction": json.dumps(trace | {"sites": [{}, *some[1:]]}),
            f"It is not whole: warp 0 waits at line {meeting}": json.dumps(trace | {"sites": [
                site | ({"instruction": "bar.sync", "operand": 1, "threads": 96} if site["line"] == meeting else {}) for site in some]}),
            "but its kernel has 3 lines": json.dumps(trace | {"source": ["a", "b", "c"]}),
        }
        for reason, text in broken.items():
            with self.subTest(reason=reason):
                self.assertIn(reason, self.give(text))
                self.assertEqual(self.said(), before)
        # Without its text a trace is shown by line numbers alone; and it can be dropped.
        self.assertEqual(self.give(json.dumps(without_source)), "")
        self.assertIn("Event 0, warp 0, line", self.said())
        self.run_script("""
          const files = new DataTransfer();
          files.items.add(new File([arguments[0]], 'dropped.json'));
          document.querySelector('.player').dispatchEvent(new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}));
        """, "{}")
        self.wait_for(lambda: "dropped.json is not shown" in self.run_script("return document.querySelector('.refusal').textContent"))

    def test_mbarriers(self) -> None:
        """Warp 0 copies and lets its copies arrive; warp 1, which has waited since before, goes on."""
        memory = {"shared": {"buffer": "K", "bytes": 512}}
        at = {"shared": {"buffer": "full", "bytes": 8}}
        copy = memory | {"global": {"buffer": "K", "bytes": 512}, "bytes": 512}
        steps = [("mbarrier.try_wait.parity", at, 1, 0), ("cp.async.16", copy, 0, 512, 0), ("cp.async.mbarrier.arrive.noinc", at, 0, 0),
                 ("mbarrier.try_wait.parity", at, 0, 0), ("ldmatrix.x4", memory, 1, 512), ("ldmatrix.x4", memory, 0, 512)]
        own = {"format": "flash-ladder trace 1", "stage": "mine", "n": 16, "d": 128, "tile": {"bc": 16},
               "global": [{"buffer": "K", "bytes": 4096}],
               "shared": [{"launch": 0, "buffer": "K", "offset": 0, "bytes": 1024}, {"launch": 0, "buffer": "full", "offset": 1024, "bytes": 8}],
               "sites": [{"launch": 0, "instruction": name, "file": "mine", "line": i + 1, **rest} for i, (name, rest, *_) in enumerate(steps)],
               "events": [[i, *numbers] for i, (_, _, *numbers) in enumerate(steps)]}
        self.start()
        self.assertEqual(self.give(json.dumps(own)), "")
        seen = []
        for _ in steps:
            seen.append(self.run_script("""
              const texts = (selector) => [...document.querySelectorAll(selector + ' .state-text')].map(text => text.textContent);
              return [texts('.lanes').map(text => text.startsWith('waits')), texts('.memory')[0]]"""))
            self.press("ArrowRight")
        self.assertEqual([waits for waits, _ in seen], [[False, True], [False, True], [False, True], [True, True], [True, False], [False, False]])
        self.assertEqual([memory for _, memory in seen], ["4 rows: empty", *["4 rows: 2 in flight"] * 3, *["4 rows: 2 safe"] * 2])
        self.assertTrue(self.run_script("return document.querySelector('[data-choice=order]').disabled"))

    def test_rows_of_a_tile_in_panels(self) -> None:
        """A bulk copy of 16 rows of 256 bytes leaves two panels of rows of 128 bytes, behind a place as large."""
        places = [(4096, 4096), (4096, 1024), (4096 + 2048 + 512, 512), (4096 + 128, 2048 + 256), (4096 + 7 * 128, 128)]
        own = {"format": "flash-ladder trace 1", "stage": "mine", "n": 32, "d": 128, "tile": {"bc": 16}, "global": [{"buffer": "K", "bytes": 8192}],
               "shared": [{"launch": 0, "buffer": "K", "offset": 0, "bytes": 8192}],
               "sites": [{"launch": 0, "instruction": "ldmatrix.x4" if i else "cp.async.bulk.tensor.3d", "file": "mine", "line": i + 1, "bytes": size,
                          "shared": {"buffer": "K", "bytes": size}} for i, (_, size) in enumerate(places)],
               "events": [[i, 0, offset] for i, (offset, _) in enumerate(places)]}
        self.start()
        self.assertEqual(self.give(json.dumps(own)), "")
        seen = []
        for _ in places:
            seen.append(self.said().partition("shared ")[2].partition(")")[0])
            self.press("ArrowRight")
        self.assertEqual(seen, ["K (in rows 16 to 31", "K (in rows 16 to 23 of panel 0", "K (in rows 20 to 23 of panel 1", "K (in rows 17 to 18",
                                "K (in row 23 of panel 0"])

    def test_without_scripts_a_table_tells_the_trace(self) -> None:
        page = (self.site / "docs" / "player.html").read_text(encoding="utf-8")
        rows = re.findall(r"<tr><td>(\d+)</td><td>([^<]+)</td><td>([^<]*)</td><td>(\d+)</td>", page)
        self.assertEqual(sum(int(count) for *_, count in rows), len(TRACES[COPYING.name]["events"]))
        self.assertIn("JavaScript", page)

    def test_on_a_small_screen_rows_and_controls_are_in_sight_together(self) -> None:
        self.screen({"width": 1366, "height": 768, "deviceScaleFactor": 1, "mobile": False})
        self.start(f"#stage={COPYING.name}&event=1000")
        rows = "return [...document.querySelectorAll('.player .row .name')].filter(n => ['K', 'V'].includes(n.textContent)).slice(0, 2).map(n => n.getBoundingClientRect().bottom)"
        self.run_script("document.querySelector('.player .steps').scrollIntoView()")
        self.assertLess(max(self.run_script(rows)), 768)  # the tiles in shared memory, which stand before global memory
        title = "return [...document.querySelectorAll('.player h3')].map(h => h.textContent)"
        self.assertLess(self.run_script(title).index("Shared memory"), self.run_script(title).index("Global memory"))
        self.run_script("scrollBy(0, 300)")
        top, bottom = self.run_script("const box = document.querySelector('.player .buttons').getBoundingClientRect(); return [box.top, box.bottom]")
        self.assertGreaterEqual(top, 0)
        self.assertLess(bottom, 200)

    def test_in_a_chapter_it_opens_where_the_chapter_says(self) -> None:
        found = 0
        for page in self.pages:
            text = page.read_text(encoding="utf-8")
            if not (wanted := re.search(r'class="player" data-first="(\S+)" data-at="(\S+) (\d+)', text)):
                continue
            found += 1
            self.browser.get("about:blank")
            self.open(page.as_uri() + "#L1")
            self.opened = True
            with self.subTest(page=page.parent.name):
                self.assertEqual(self.run_script("return document.querySelector('.player').dataset.isFound"), "true")
                self.assertIn(f"{wanted[2]} of tile {wanted[3]}, line", self.said())
                self.assertEqual(text.count('class="stage" data-name'), 1)  # that rung's trace and no other
                before = self.run_script("return document.querySelector('.player').dataset.event")
                self.run_script("document.querySelector('.player [data-action=next]').click()")
                self.assertNotEqual(self.run_script("return document.querySelector('.player').dataset.event"), before)
                self.assertTrue(self.browser.current_url.endswith("#L1"))  # the address is the chapter's
        self.assertGreater(found, 0)

    def test_it_fits_a_phone_in_light_and_dark(self) -> None:
        self.screen(browser.PHONE)
        self.start(f"#stage={LATER.name}&event=1000")
        self.assertLessEqual(self.run_script("return document.documentElement.scrollWidth"), browser.PHONE["width"])


if __name__ == "__main__":
    browser.main()
