//! Known drives come back; what is written is read.

use stripewise_sim::models::{DriveModel, Model, Provenance};

use super::model::number;
use super::*;

fn circumstances() -> Circumstances {
    Circumstances { date: "a day".to_owned(), cpu: "a CPU".to_owned() }
}

/// Fits a model, like another drive, to a modelled one.
fn fitted(drive: &str, like: &str) -> (Model, FittedDrive) {
    let (truth, cpu) = (Model::load(drive).unwrap(), Model::load("opteron-4238").unwrap());
    // Another place of platters than the fit's own probes have.
    let found = Findings::of(&mut Modelled::new(&truth, &cpu, 99).unwrap(), Effort::DEFAULT).unwrap();
    let like = Model::load(like).unwrap();
    (truth, fit(&found, &like, &cpu, Effort::DEFAULT, &circumstances()).unwrap())
}

fn within(fit: &FittedDrive, truth: &Model, parameter: &str, share: f64) {
    let (found, wanted) = (number(&fit.model, parameter), number(truth, parameter));
    let compared = &fit.compared;
    assert!((found / wanted - 1.0).abs() <= share, "{parameter}: {found}, but it is {wanted}: {compared:#?}");
}

#[test]
fn a_mechanical_drive_comes_back_from_probes_of_its_model() {
    for (drive, like) in [("st3320620as", "st31000333as"), ("exos-x20-20tb", "st3000dm001")] {
        let (truth, fit) = fitted(drive, like);
        for (parameter, share) in [
            ("capacity", 0.0),
            ("rpm", 0.0),
            ("seek_average_read", 0.05),
            ("seek_max_read", 0.05),
            ("queue_depth", 0.0),
            ("link_rate", 0.1),
        ] {
            within(&fit, &truth, parameter, share);
        }
        assert!(fit.error_median() < 0.02, "{drive}: median {}", fit.error_median());
        let worst = fit.worst().unwrap();
        assert!(worst.error.abs() < 0.15, "{drive}: {worst:?}");
        let kind = |name: &str| fit.model.parameters.iter().find(|p| p.name == name).unwrap().kind;
        assert_eq!((kind("rpm"), kind("heads")), (Provenance::Measured, Provenance::Assumed));
    }
}

#[test]
fn a_flash_drive_comes_back_from_probes_of_its_model() {
    let (truth, fit) = fitted("ssd-dc-s3700-800gb", "ssd-d7-p5600-6.4tb");
    within(&fit, &truth, "capacity", 0.0);
    within(&fit, &truth, "controller_rate", 0.1);
    let of = |probe: &str| fit.compared.iter().find(|c| c.probe.starts_with(probe)).unwrap();
    for probe in ["4 KiB read at random", "random 4 KiB reads, 32 at a time", "sequential read, 8 at a time"]
    {
        assert!(of(probe).error.abs() < 0.05, "{:?}", of(probe));
    }
}

#[test]
fn a_fitted_model_is_read_back_from_its_file() {
    let (_, fit) = fitted("st3320620as", "st31000333as");
    let read = Model::parse("my.toml", &toml(&fit.model)).unwrap();
    assert_eq!((read.hash(), &read.rig), (fit.model.hash(), &fit.model.rig));
    // Not those of the drive that it is like.
    assert_eq!(read.rig.as_ref().map(|rig| rig.controller.as_str()), Some("sas-hba-pcie3-x8"));
    DriveModel::new(&read).unwrap();
}

#[test]
fn this_machines_cpu_makes_a_model() {
    let model = cpu("this", &circumstances()).unwrap();
    let read = Model::parse("this.toml", &toml(&model)).unwrap();
    assert_eq!((read.hash(), read.name.as_str()), (model.hash(), "this"));
    let is_measured = |name: &str| !["copy_traffic", "row_io_cost"].contains(&name);
    for parameter in model.parameters.iter().filter(|p| is_measured(p.name)) {
        assert_eq!(parameter.kind, Provenance::Measured, "{}", parameter.name);
        assert!(parameter.source.starts_with("measured by models calibrate on a day, a CPU"));
    }
    // What any machine that runs this does.
    assert!(number(&model, "xor_rate") > number(&model, "copy_rate") / 4.0);
    assert!(number(&model, "aes_xts_rate") > 20.0);
}

#[test]
fn a_device_too_small_or_absent_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small");
    assert!(Device::open(&path).unwrap_err().to_string().contains("cannot be opened"));
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let error = Device::open(&path).unwrap_err().to_string();
    assert!(error.contains("too small") && error.contains("2097152"), "{error}");
}

#[test]
fn a_file_with_holes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.img");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(2 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 1 << 16], 0).unwrap();
    let error = super::Device::open(&path).err().unwrap().to_string();
    assert!(error.contains("sparse.img: has holes, the first at byte 65536"), "{error}");
}
