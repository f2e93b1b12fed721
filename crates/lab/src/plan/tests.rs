use super::*;

const SMALL: &str = r#"
name = "small"
title = "t"
question = "q"
subject = "chunk"
replicates = 2
[array]
level = 5
raid_devices = 5
[job]
runtime = "1s"
[factors]
target = ["array", "drive"]
rw = ["read", "randrw"]
rwmixread = [70, 30]
chunk = ["32K", "64K", "128K"]
[quick]
replicates = 1
runtime = "100ms"
[quick.factors]
chunk = ["64K", "128K"]
[real]
policy = "linux-6.1"
member_size = "64m"
fill = "random"
[real.quick]
runtime = "50ms"
"#;

fn fault(from: &str, to: &str) -> String {
    let text = SMALL.replacen(from, to, 1);
    assert_ne!(text, SMALL, "'{from}' is not in the plan");
    let plan = Plan::parse("small.toml", &text);
    let expanded = plan.and_then(|p| p.resolve(Choices::default()).and_then(|r| p.expand(&r)));
    expanded.expect_err("the fault was not noticed").to_string()
}

fn cells(choices: Choices) -> Vec<crate::cell::Cell> {
    let plan = Plan::parse("small.toml", SMALL).unwrap();
    plan.expand(&plan.resolve(choices).unwrap()).unwrap().cells
}

#[test]
fn only_factors_that_apply_multiply() {
    // Per replicate: array (1 read + 2 mixed) x 3 chunks, drive 1 + 2.
    let cells = cells(Choices::default());
    assert_eq!(cells.len(), 2 * (3 * 3 + 3));
    let drive = cells.iter().find(|c| c.target() == "drive").unwrap();
    assert!(!drive.factors.contains_key("chunk"));
    let read = cells.iter().find(|c| c.factors["rw"] == "read").unwrap();
    assert!(!read.factors.contains_key("rwmixread"));
}

#[test]
fn what_is_fixed_and_varied_in_one_place_is_refused() {
    let said = fault("[job]\n", "[job]\nrw = \"write\"\n");
    assert!(said.contains("11"), "the line is told: {said}");
    assert!(said.contains("'rw' is fixed in [job] and varied in [factors]; leave one of them out"), "{said}");
    let part = "[[part]]\nname = \"p\"\n[part.job]\nrw = \"write\"\n[part.factors]\nrw = [\"read\"]\n";
    let said = fault("fill = \"random\"\n", &format!("fill = \"random\"\n{part}"));
    assert!(said.contains("'rw' is fixed in [job]"), "{said}");
}

#[test]
fn overrides_apply_in_order() {
    let quick = cells(Choices { quick: true, ..Choices::default() });
    assert_eq!(quick.len(), 3 * 2 + 3);
    assert!(quick.iter().all(|c| c.parameters.printed()["runtime"] == "100ms"));
    let real = cells(Choices { quick: true, real: true, ..Choices::default() });
    let printed = real[0].parameters.printed();
    assert_eq!((printed["runtime"].as_str(), printed["policy"].as_str()), ("50ms", "linux-6.1"));
    let storage = Plan::parse("small.toml", SMALL).unwrap().real_storage().unwrap();
    assert_eq!(storage, RealStorage { member_bytes: Some(64 << 20), fill: Fill::Random });
}

#[test]
fn the_published_matrix_is_whole() {
    let plan = Plan::open("chunk-size").unwrap();
    let resolved = plan.resolve(Choices { replicates: Some(1), ..Choices::default() }).unwrap();
    let cells = plan.expand(&resolved).unwrap().cells;
    assert_eq!(cells.len(), 2 * 3 * 2 * 9 * (2 * 9 + 1));
    assert_eq!(resolved.subject_values.len(), 9);
}

#[test]
fn faults_name_file_line_and_key() {
    for (from, to, line, words) in [
        ("name =", "nmae =", 2, &["nmae", "name"][..]),
        ("raid_devices = 5", "raid_device = 5", 9, &["raid_device", "[array]", "stripe_cache_size"]),
        ("rwmixread", "rwmix", 15, &["rwmix", "rwmixread"]),
        ("\"64K\"", "\"48K\"", 16, &["chunk", "48K", "power of two"]),
        ("runtime = \"1s\"", "runtime = \"1y\"", 11, &["runtime", "1y"]),
        ("runtime = \"1s\"", "bs = 1000", 11, &["bs", "multiple of 512"]),
        ("runtime = \"1s\"", "policy = \"linux-6.1\"", 11, &["policy", "[job]", "rwmixread"]),
        ("linux-6.1", "linux-9", 23, &["linux-9", "linux-2.6.27"]),
        ("replicates = 2", "replicates = 0", 6, &["replicates"]),
        ("replicates = 2", "replicates = \"x\"", 6, &["u32"]),
        ("[70, 30]", "[]", 15, &["rwmixread", "no values"]),
        ("[70, 30]", "[70, 70]", 15, &["rwmixread", "twice"]),
        ("[70, 30]", "[70, 101]", 15, &["rwmixread", "101"]),
        ("[70, 30]", "[70, {}]", 15, &["string"]),
        ("subject = \"chunk\"", "subject = \"bs\"", 5, &["bs", "chunk"]),
        ("subject = \"chunk\"", "subject = \"target\"", 5, &["target", "is not ranked"]),
        ("name = \"small\"", "name = \"../small\"", 2, &["../small", "letters, digits"]),
        ("name = \"small\"", "name = \"..\"", 2, &["name a folder"]),
        ("name = \"small\"", "name = \"\"", 2, &["name a folder"]),
        ("raid_devices = 5", "raid_devices = 0", 9, &["raid_devices", "1 to 384"]),
        ("\"64m\"", "\"64q\"", 24, &["member_size"]),
        ("\"random\"", "\"full\"", 25, &["full", "sparse"]),
        ("[quick]", "[quick", 17, &[]),
    ] {
        // `member_size` is read when real storage is asked for, all else when the plan is parsed.
        let text = if to == "\"64q\"" {
            let text = SMALL.replacen(from, to, 1);
            Plan::parse("small.toml", &text).unwrap().real_storage().unwrap_err().to_string()
        } else {
            fault(from, to)
        };
        assert!(text.starts_with(&format!("small.toml:{line}: ")), "{from} -> {to}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{from} -> {to}: {text}");
    }
}

#[test]
fn a_plan_without_replicates_runs_each_cell_once_unless_an_option_says_otherwise() {
    let text = SMALL.replace("replicates = 2\n", "").replace("replicates = 1\n", "");
    let plan = Plan::parse("small.toml", &text).unwrap();
    let count = |replicates| {
        let resolved = plan.resolve(Choices { replicates, ..Choices::default() }).unwrap();
        plan.expand(&resolved).unwrap().cells.len()
    };
    assert_eq!(count(Some(3)), 3 * count(None));
    assert_eq!(count(Some(1)), count(None));
    let none = plan.resolve(Choices { replicates: Some(0), ..Choices::default() }).unwrap_err().to_string();
    assert!(none.contains("replicates is 0"), "{none}");
}

#[test]
fn a_raid0_has_any_chunk_of_whole_pages_and_other_levels_a_power_of_two() {
    let of = |levels: &str, chunks: &str| {
        let text = SMALL.replacen("level = 5\n", "", 1);
        let text =
            text.replacen("[\"32K\", \"64K\", \"128K\"]", &format!("[{chunks}]\nlevel = [{levels}]"), 1);
        let plan = Plan::parse("small.toml", &text)?;
        plan.expand(&plan.resolve(Choices::default())?)
    };
    let cells = of("0, 1", "\"12K\", \"64K\"").unwrap().cells;
    assert!(cells.iter().any(|cell| cell.factors.get("chunk").is_some_and(|chunk| chunk == "12K")));
    for level in ["4", "5", "6", "10"] {
        let error = of(&format!("0, {level}"), "\"12K\", \"64K\"").unwrap_err().to_string();
        assert!(error.starts_with("small.toml:15: "), "{error}");
        let words = format!("chunk 12K: raid{level} needs a power of two, such as 8K or 16K; only raid0");
        assert!(error.contains(&words), "{error}");
    }
    for chunk in ["6K", "0", "1025M"] {
        let error = of("0", &format!("\"{chunk}\"")).unwrap_err().to_string();
        assert!(error.contains("of raid0 any multiple of 4K"), "{error}");
    }
}

#[test]
fn layouts_have_their_names_in_full_and_are_not_said_twice() {
    let of = |levels: &str, layouts: &str| {
        let text =
            SMALL.replace("chunk = [\"32K\", \"64K\", \"128K\"]", &format!("{levels}\nlayout = [{layouts}]"));
        let text = text.replace("subject = \"chunk\"", "subject = \"layout\"");
        let text = if levels.is_empty() { text } else { text.replace("level = 5\n", "") };
        Plan::parse("small.toml", &text).and_then(|plan| plan.resolve(Choices::default()))
    };
    let values = |levels, layouts| of(levels, layouts).unwrap().subject_values;
    assert_eq!(values("", "\"ls\", \"la\""), ["left-symmetric", "left-asymmetric"]);
    assert_eq!(
        values("level = [5, 6]", "\"la\", \"right-symmetric\""),
        ["left-asymmetric", "right-symmetric"]
    );
    assert_eq!(values("level = [10]", "\"f2\", \"o2\""), ["f2", "o2"]);
    let twice = of("", "\"ls\", \"left-symmetric\"").unwrap_err().to_string();
    assert!(twice.contains("left-symmetric twice"), "{twice}");
}

#[test]
fn impossible_arrays_are_refused_with_what_would_be_right() {
    assert!(fault("level = 5\nraid_devices = 5", "level = 6\nraid_devices = 3").contains("at least 4"));
    assert!(fault("level = 5", "level = 5\nlayout = \"n2\"").contains("left-symmetric"));
    assert!(fault("raid_devices = 5", "raid_devices = 9").contains("count of drives is 5"));
    let many: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    let many = many.join(",");
    let factors = format!("rwmixread = [70]\nnumjobs = [{many}]\niodepth = [{many}]");
    assert!(fault("rwmixread = [70, 30]", &factors).contains("1000000 cells"));
}

#[test]
fn faults_of_the_layers_name_file_line_and_key() {
    for (stack, line, words) in [
        ("readahead = 0", 14, "not a readahead"),
        ("readahead = 1099511627776", 14, "not a readahead"),
        ("readahead = 18446744073709551616", 14, "readahead: invalid type"),
        ("memory = \"4m\"\nreadahead = 1048576", 15, "half of the cache's memory"),
        ("memory = \"1k\"", 14, "it must be 1048576"),
        ("dirty_ratio = 101", 14, "not a percentage"),
        ("dirty_ratio = 0", 14, "leaves no page"),
        ("dirty_ratio = 10\ndirty_background_ratio = 20", 15, "not below"),
        ("crypt = \"rot13\"", 14, "aes-xts-plain64"),
        ("crypt_offset = 100", 14, "multiple of 512"),
        ("readahed = 256", 14, "use one of memory"),
    ] {
        let text = fault("runtime = \"1s\"", &format!("runtime = \"1s\"\ndirect = 0\n[stack]\n{stack}"));
        assert!(text.starts_with(&format!("small.toml:{line}: ")), "{stack}: {text}");
        assert!(text.contains(words), "{stack}: {text}");
    }
}

#[test]
fn faults_of_a_recovery_beside_a_job_name_file_line_and_key() {
    let text = fault("runtime = \"1s\"", "runtime = \"1s\"\nwork = \"rebuilt\"");
    assert!(
        text.starts_with("small.toml:12: ") && text.contains("use one of job, resync, recover, rebuild"),
        "{text}"
    );
    // Without the single drive, which nothing recovers.
    let array = SMALL.replace("target = [\"array\", \"drive\"]\n", "");
    let fault = |array_lines: &str, job_lines: &str| {
        let text = array
            .replace("level = 5", &format!("level = 5\n{array_lines}"))
            .replace("runtime = \"1s\"", &format!("{job_lines}\nwork = \"rebuild\""));
        let plan = Plan::parse("small.toml", &text);
        let expanded = plan.and_then(|p| p.resolve(Choices::default()).and_then(|r| p.expand(&r)));
        expanded.map(|e| e.cells).map_err(|e| e.to_string())
    };
    let cells = fault("failed = 1", "runtime = \"1s\"").unwrap();
    let printed = cells[0].parameters.printed();
    assert_eq!((printed["work"].as_str(), printed["speed_limit_min"].as_str()), ("rebuild", "1000"));
    assert!(printed.contains_key("rw") && printed.contains_key("fs"));
    let refused = |array_lines, job_lines| fault(array_lines, job_lines).unwrap_err();
    assert!(
        refused("failed = 0", "runtime = \"1s\"")
            .starts_with("small.toml:9: work rebuild needs failed members")
    );
    assert!(refused("layout = \"left-symmetric\"", "runtime = \"1s\"").contains("failed to 1 or more"));
    let text = array.replace("level = 5", "level = 0").replace("runtime = \"1s\"", "work = \"rebuild\"");
    let text = Plan::parse("small.toml", &text)
        .and_then(|p| p.resolve(Choices::default()).and_then(|r| p.expand(&r)));
    let text = text.unwrap_err().to_string();
    assert!(text.starts_with("small.toml:11: ") && text.contains("level 1 on two or more members"), "{text}");
    assert!(
        refused("failed = 1", "runtime = \"0s\"\ntime_based = 0")
            .starts_with("small.toml:12: work rebuild is measured over a time")
    );
    assert!(refused("failed = 1", "runtime = \"1s\"\ntime_based = 0").contains("set time_based to 1"));
}

#[test]
fn as_many_members_fail_as_the_layout_survives() {
    use stripewise_engine::level::Level;
    use stripewise_engine::units::Slot;
    let slots = |level, layout: Option<&str>, count, failed| {
        let mut parameters = Parameters::default();
        (parameters.array.level, parameters.array.layout) = (level, layout.map(str::to_owned));
        (parameters.rig.count, parameters.array.failed) = (count, failed);
        let slots = parameters.failed_slots().map_err(String::from)?;
        Ok::<_, String>(slots.into_iter().map(|Slot(slot)| slot).collect::<Vec<_>>())
    };
    for (level, layout, count, failed, expected) in [
        (Level::Raid0, None, 4, 0, &[][..]),
        (Level::Raid1, None, 2, 1, &[0]),
        (Level::Raid1, None, 4, 3, &[0, 1, 2]),
        (Level::Raid5, None, 5, 1, &[0]),
        (Level::Raid6, None, 6, 2, &[0, 1]),
        (Level::Raid10, None, 4, 2, &[0, 2]),
        (Level::Raid10, Some("n3"), 6, 4, &[0, 1, 3, 4]),
        (Level::Raid10, Some("f2"), 5, 2, &[0, 2]),
        (Level::Raid10, Some("o2"), 4, 2, &[0, 2]),
    ] {
        assert_eq!(slots(level, layout, count, failed).unwrap(), expected, "{level} {layout:?} of {count}");
    }
    for (level, layout, count, failed, most) in [
        (Level::Raid0, None, 4, 1, 0),
        (Level::Raid1, None, 2, 2, 1),
        (Level::Raid5, None, 5, 2, 1),
        (Level::Raid10, None, 4, 3, 2),
        (Level::Raid10, Some("f2"), 5, 3, 2),
    ] {
        let error = slots(level, layout, count, failed).unwrap_err();
        let wanted = format!("survives the loss of {most}, but failed is {failed}");
        assert!(error.contains(&wanted), "{error}");
    }
}

#[test]
fn what_no_array_is_laid_out_as_is_refused_with_the_plan() {
    let check = |level: &str, layout: Option<&str>, count: &str| {
        let mut parameters = Parameters::default();
        for (name, value) in [("count", count), ("level", level)] {
            parameters.set(name, value).unwrap();
        }
        if let Some(layout) = layout {
            parameters.set("layout", layout).unwrap();
        }
        parameters.check().map_err(|fault| (fault.key, fault.message))
    };
    assert_eq!(check("raid6", None, "255"), Ok(()));
    assert_eq!(check("raid5", None, "384"), Ok(()));
    assert_eq!(check("raid10", Some("f2"), "5"), Ok(()));
    let (key, message) = check("raid6", None, "256").unwrap_err();
    assert_eq!((key, message.as_str()), (Some("raid_devices"), "raid6 on 256 members: it takes at most 255"));
    for (layout, count) in [("n3", "2"), ("n1", "4"), ("o3", "2")] {
        let (key, message) = check("raid10", Some(layout), count).unwrap_err();
        assert_eq!(key, Some("layout"), "{message}");
        assert!(message.starts_with(&format!("layout {layout}")), "{message}");
    }
}

#[test]
fn levels_without_redundancy_have_no_work_of_their_own() {
    for (level, count, is_refused) in
        [("raid0", "4", true), ("raid1", "1", true), ("raid1", "2", false), ("raid10", "2", false)]
    {
        let mut parameters = Parameters::default();
        for (name, value) in [("count", count), ("level", level), ("work", "resync"), ("runtime", "1s")] {
            parameters.set(name, value).unwrap();
        }
        assert_eq!(parameters.check_sync().is_err(), is_refused, "{level} of {count}");
    }
}

const PARTS: &str = r#"
name = "parts"
title = "t"
question = "q"
subject = "chunk"
replicates = 1
[factors]
chunk = ["64K", "128K"]
bs = ["4k", "8k"]
[quick.factors]
bs = ["8k"]
[[part]]
name = "a"
[part.job]
rw = "randread"
[[part]]
name = "b"
[part.job]
bs = "1m"
[part.factors]
rw = ["read", "write"]
"#;

#[test]
fn parts_do_not_combine_and_what_they_fix_does_not_vary() {
    let plan = Plan::parse("parts.toml", PARTS).unwrap();
    let cells = |quick| {
        let resolved = plan.resolve(Choices { quick, ..Choices::default() }).unwrap();
        plan.expand(&resolved).unwrap().cells
    };
    let of =
        |cells: &[crate::cell::Cell], part: &str| cells.iter().filter(|c| c.factors["part"] == part).count();
    let all = cells(false);
    assert_eq!((of(&all, "a"), of(&all, "b")), (2 * 2, 2 * 2));
    assert!(all.iter().filter(|c| c.factors["part"] == "b").all(|c| c.factors["bs"] == "1m"));
    let twice = Plan::parse("parts.toml", &PARTS.replace("name = \"b\"", "name = \"a\"")).unwrap_err();
    assert!(twice.to_string().starts_with("parts.toml:17: two parts are named 'a'"), "{twice}");
    let quick = cells(true);
    assert_eq!((of(&quick, "a"), of(&quick, "b")), (2, 2 * 2));
}

#[test]
fn an_unknown_study_names_the_known_ones() {
    assert!(Plan::open("chunk").unwrap_err().to_string().contains("chunk-size"));
    assert!(Plan::open("/nowhere/x.toml").unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn a_subject_that_is_the_workload_itself_is_refused() {
    for subject in ["rw", "rwmixread"] {
        let error = fault("subject = \"chunk\"", &format!("subject = \"{subject}\""));
        assert!(error.starts_with("small.toml:5: "), "{error}");
        assert!(error.contains("is the workload itself") && error.contains("such as chunk"), "{error}");
    }
}

#[test]
fn levels_meet_the_same_requests() {
    let text = SMALL
        .replace("subject = \"chunk\"", "subject = \"level\"")
        .replace("level = 5\n", "")
        .replace("chunk = [", "level = [\"raid5\", \"raid6\", \"raid0\", \"raid1\"]\n#")
        .replace("[quick.factors]\n#", "[quick.factors]\n");
    let text = text.split("[quick]").next().unwrap();
    let plan = Plan::parse("levels.toml", text).unwrap();
    let cells = plan.expand(&plan.resolve(Choices::default()).unwrap()).unwrap().cells;
    let seeds: std::collections::BTreeSet<u64> = cells
        .iter()
        .filter(|c| c.target() == "array" && c.factors["rw"] == "read" && c.replicate == 0)
        .map(crate::cell::Cell::seed)
        .collect();
    assert_eq!(seeds.len(), 1);
}

#[test]
fn a_key_that_is_missing_is_not_told_under_the_name_of_another() {
    assert_eq!(fault("title = \"t\"\n", ""), "small.toml: missing field `title`");
    assert_eq!(fault("\nname = \"small\"", ""), "small.toml: missing field `name`");
    let part = fault("[quick]", "[[part]]\n[part.job]\nbs = \"4k\"\n[quick]");
    assert!(part.contains("missing field `name`") && !part.contains("bs"), "{part}");
}

#[test]
fn a_bitmap_is_refused_where_it_makes_no_sense() {
    let check = |settings: &[(&str, &str)]| {
        let mut parameters = Parameters::default();
        settings.iter().try_for_each(|(name, value)| parameters.set(name, value))?;
        parameters.check().map_err(String::from)
    };
    assert_eq!(check(&[("bitmap", "internal"), ("bitmap_chunk", "128M")]), Ok(()));
    let refused = |settings: &[(&str, &str)]| check(settings).unwrap_err();
    assert!(refused(&[("level", "0"), ("bitmap", "internal")]).contains("raid0 array has no redundancy"));
    assert!(refused(&[("bitmap", "external")]).contains("use none or internal"));
    assert!(refused(&[("bitmap_chunk", "3M")]).contains("power of two"));
    let resync = [("bitmap", "internal"), ("work", "resync"), ("runtime", "1s")];
    assert!(refused(&resync).contains("without a bitmap"));
}
