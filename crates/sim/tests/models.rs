//! Model files: what is built in is complete, and what is wrong is refused by name.

use stripewise_sim::models::{BUILT_IN, DriveModel, Model, Problem, Provenance};
use stripewise_sim::{Rig, RigNames};

const ST31000333AS: &str = include_str!("../../../studies/models/st31000333as.toml");

/// The built-in drive with one text replaced, and the error it gives.
fn refused(from: &str, to: &str) -> String {
    assert!(ST31000333AS.contains(from));
    Model::parse("drive.toml", &ST31000333AS.replacen(from, to, 1))
        .expect_err("a wrong model is refused")
        .to_string()
}

#[test]
fn every_built_in_model_loads_with_sources() {
    for built_in in BUILT_IN {
        let model = Model::load(built_in.name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(model.name, built_in.name);
        for parameter in &model.parameters {
            assert!(!parameter.source.is_empty() && !parameter.about.is_empty());
        }
    }
    let drive = Model::load("st31000333as").unwrap();
    let kind = |name| drive.parameters.iter().find(|p| p.name == name).unwrap().kind;
    assert_eq!(kind("rpm"), Provenance::Quoted);
    assert_eq!(kind("seek_average_read"), Provenance::Assumed);
}

#[test]
fn every_drive_says_what_it_is_used_with_and_nothing_else_does() {
    for built_in in BUILT_IN {
        let model = Model::load(built_in.name).unwrap();
        assert_eq!(model.rig.is_some(), model.kind.is_drive(), "{}", model.name);
        let Some(usual) = &model.rig else { continue };
        let names =
            RigNames::with_topology(&model.name, &usual.controller, &usual.cpu, &usual.block, 4).unwrap();
        let rig = Rig::load(&names).unwrap_or_else(|e| panic!("{}: {e}", model.name));
        assert!(rig.controllers.iter().all(|c| c.members.len() <= c.model.ports), "{}", model.name);
    }
    let without = refused("block = \"linux-block-2.6.27\"\n", "");
    assert!(without.contains("drive.toml:7") && without.contains("block"), "{without}");
    let cpu = include_str!("../../../studies/models/opteron-244.toml");
    let cpu = cpu.replacen(
        "\n[parameter",
        "\n[rig]\ncontroller = \"a\"\ncpu = \"b\"\nblock = \"c\"\n[parameter",
        1,
    );
    let error = Model::parse("cpu.toml", &cpu).unwrap_err().to_string();
    assert!(error.starts_with("cpu.toml:6: ") && error.contains("kind \"cpu\"; leave it out"), "{error}");
}

#[test]
fn absurd_values_are_refused_by_name_and_line() {
    let rpm = refused("value = 7200", "value = 0");
    assert_eq!(rpm, "drive.toml:19: rpm: 0 is not possible; give a number from 1000 to 30000");
    let heads = refused("value = 6\n", "value = 2.5\n");
    assert!(heads.contains("heads: 2.5 is not possible; give a whole number"), "{heads}");
    let negative = refused("value = 8.5", "value = -8.5");
    assert!(negative.contains("seek_average_read: -8.5 is not possible"), "{negative}");
    let huge = refused("value = 7200", "value = 1e300");
    assert!(huge.contains("rpm: 1e300 is not possible"), "{huge}");
    let absent = refused("value = 7200\n", "");
    assert_eq!(absent, "drive.toml:18: rpm: missing field `value`");
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    let seek = refused("value = 8.5", "value = 18.5");
    assert!(seek.contains("seek_average_read: seek times must rise"), "{seek}");
    let shape = refused("value = 8.5", "value = 16.9");
    assert!(shape.contains("no rising seek curve"), "{shape}");
    let zones = refused("7896, 7896", "1, 7896");
    assert!(zones.contains("zone_cylinders: the zones hold") && zones.contains("1953525168"), "{zones}");
    let fewer = refused("7896, 7896", "7896");
    assert!(fewer.contains("23 in zone_cylinders"), "{fewer}");
    let skew = refused("value = 0.9", "value = 0.5");
    assert!(skew.contains("toml:97: track_skew: must be at least head_switch"), "{skew}");
    let cache = refused("value = 32\nunit = \"MiB\"", "value = 16\nunit = \"MiB\"");
    assert!(cache.contains("cache: read segments and write cache take"), "{cache}");
}

#[test]
fn unknown_missing_and_ill_formed_parameters_are_refused() {
    let unknown = refused("[parameter.rpm]", "[parameter.rmp]");
    assert!(unknown.contains("rpm: missing: revolutions a minute, in rpm"), "{unknown}");
    let extra = refused(
        "[parameter.rpm]",
        "[parameter.speed]\nvalue = 1\nunit = \"x\"\nkind = \"quoted\"\nsource = \"y\"\n[parameter.rpm]",
    );
    assert!(extra.contains("speed: no such parameter; this kind of model has capacity, rpm"), "{extra}");
    let unit = refused("unit = \"rpm\"", "unit = \"Hz\"");
    assert!(unit.contains("rpm: the unit is \"Hz\"; give the value in \"rpm\""), "{unit}");
    let source = refused(
        "source = \"Arch wiki, \\\"Benchmarking disk wipes\\\", the entry of this model\"",
        "source = \" \"",
    );
    assert!(source.contains("rpm: the source is empty"), "{source}");
    let kind = refused("kind = \"quoted\"", "kind = \"guessed\"");
    assert!(kind.contains("drive.toml:21") && kind.contains("guessed"), "{kind}");
    let syntax = refused("value = 7200", "value = = 7200");
    assert!(syntax.starts_with("drive.toml:19: rpm: "), "{syntax}");
    for (value, words) in [("\"fast\"", "must be a number or a list"), ("1e400", "overflow"), ("", "")] {
        let what = refused("value = 7200", &format!("value = {value}"));
        assert!(what.starts_with("drive.toml:19: rpm: ") && what.contains(words), "{what}");
    }
    let physical = refused("value = 512\nunit = \"bytes\"", "value = 520\nunit = \"bytes\"");
    assert!(physical.contains("physical_sector: must be 512 bytes or a power of two of them"), "{physical}");
    let unnamed = refused("title = ", "title: ");
    assert!(unnamed.starts_with("drive.toml:4: "), "{unnamed}");
}

#[test]
fn flash_drives_that_cannot_be_are_refused_by_name_and_line() {
    let text = include_str!("../../../studies/models/ssd-dc-s3700-800gb.toml");
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from));
        let error =
            Model::parse("ssd.toml", &text.replacen(from, to, 1)).expect_err("a wrong model is refused");
        error.to_string()
    };
    let programs = refused("value = 23\n", "value = 129\n");
    assert!(programs.ends_with("programs_max: 129 dies program, but there are 128"), "{programs}");
    assert!(programs.starts_with("ssd.toml:"), "{programs}");
    let mapping = refused("value = 4\nunit = \"KiB\"", "value = 3\nunit = \"KiB\"");
    assert!(mapping.contains("mapping_unit: must divide page_size"), "{mapping}");
    let buffer = refused("value = 4\nunit = \"MiB\"", "value = 0.1\nunit = \"MiB\"");
    assert!(buffer.contains("write_buffer: 368 KiB are programmed at the same time"), "{buffer}");
    let flag = refused("value = 1\nunit = \"flag\"", "value = 2\nunit = \"flag\"");
    assert!(
        flag.contains("power_loss_protection: 2 is not possible; give a whole number from 0 to 1"),
        "{flag}"
    );
    let bare = text.replace("value = 1\nunit = \"flag\"", "value = 0\nunit = \"flag\"");
    let volatile = Model::parse("ssd.toml", &bare).unwrap_err().to_string();
    assert!(
        volatile.ends_with("volatile_cache: without power_loss_protection the buffer is volatile"),
        "{volatile}"
    );
    let missing = refused("[parameter.read_time]", "[parameter.reed_time]");
    assert_eq!(missing, "ssd.toml:3: read_time: missing: from a page's cells to the die's register, in us");
}

#[test]
fn models_are_found_by_name_or_path_and_of_the_right_kind() {
    let missing = Model::load("st3000dm999").unwrap_err();
    assert!(matches!(missing.problem, Problem::NoSuchModel) && missing.to_string().contains("opteron-244"));
    assert!(matches!(Model::load("no/such/file.toml").unwrap_err().problem, Problem::Unreadable(_)));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/models/constant-latency.toml");
    assert_eq!(Model::load(path).unwrap().hash(), Model::load("constant-latency").unwrap().hash());
    let cpu = Model::load("opteron-244").unwrap();
    let wrong = DriveModel::new(&cpu).unwrap_err().to_string();
    assert!(wrong.contains("kind \"cpu\"; one of kind \"hdd\""), "{wrong}");
}

#[test]
fn hash_follows_values_and_not_words() {
    let hash = |text: &str| Model::parse("drive.toml", text).unwrap().hash();
    let original = hash(ST31000333AS);
    assert_eq!(original, hash(&ST31000333AS.replace("not confirmed", "unconfirmed")));
    assert_ne!(original, hash(&ST31000333AS.replace("value = 8.5", "value = 8.6")));
}

#[test]
fn a_scaled_whole_number_stays_whole_and_within_bounds() {
    let cpu = Model::load("athlon64-2.0").unwrap();
    let stays = cpu.scaled("cores", 0.8).unwrap_err().to_string();
    assert!(stays.contains("cores: 0.8 times 1 is rounded to the same"), "{stays}");
    let xeon = Model::load("xeon-e5-2600-2s").unwrap().scaled("cores", 0.8).unwrap();
    assert_eq!(xeon.parameters.iter().find(|p| p.name == "cores").unwrap().value.numbers(), [13.0]);
    let low = Model::load("opteron-244").unwrap().scaled("copy_traffic", 0.1).unwrap_err().to_string();
    assert!(low.contains("copy_traffic: ") && low.contains("from 1 to 10"), "{low}");
}
