// The parts of Apache ECharts that the report draws with; everything else is left out of the bundle.
import { CustomChart, HeatmapChart, LineChart } from 'echarts/charts';
import { GridComponent, TooltipComponent, VisualMapContinuousComponent } from 'echarts/components';
import { init, use } from 'echarts/core';
import { LabelLayout } from 'echarts/features';
import { SVGRenderer } from 'echarts/renderers';

use([
  CustomChart,
  GridComponent,
  HeatmapChart,
  LabelLayout,
  LineChart,
  SVGRenderer,
  TooltipComponent,
  VisualMapContinuousComponent,
]);

export { init };
