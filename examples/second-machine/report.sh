# Runs on the second machine, in its own folder.
echo "written on $(cat name)" > report.txt
ls
cat report.txt
